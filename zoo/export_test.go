package zoo

// SetFailpoint has f called with the name of each step that changes the store.
func (s *Store) SetFailpoint(f func(step string)) { s.failpoint = f }
