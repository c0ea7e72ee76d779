package litertlm

// ParseForTest reads a whole file in memory.
func ParseForTest(data []byte) (*File, error) { return parse("model.litertlm", data) }
