package checkpoint

// ParseForTest checks a whole safetensors file in memory and returns its tensors.
func ParseForTest(data []byte) ([]Tensor, error) {
	h, err := readHeader(WeightsFile, data)
	if err != nil {
		return nil, err
	}
	var tensors []Tensor
	for _, e := range h.entries {
		tensors = append(tensors, Tensor{Name: e.name, DType: e.dtype, Shape: e.shape, Data: data[h.dataStart+e.start : h.dataStart+e.end]})
	}
	return tensors, nil
}

// ParseIndexForTest returns the file of each tensor of an index.
func ParseIndexForTest(text []byte) (map[string]string, error) { return parseIndex(text) }
