package zoo

// SetFailpoint has f called with the name of each step that changes the store.
func (s *Store) SetFailpoint(f func(step string)) { s.failpoint = f }

// ReceiptPath returns where the store keeps the receipt of a pack whose folder cannot be written.
func (s *Store) ReceiptPath(p *Pack) string {
	dir, err := realDir(p.dir)
	if err != nil {
		return ""
	}
	return s.path(receiptName(dir, p.digest))
}
