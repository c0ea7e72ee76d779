package metal

// Source is source.
var Source = source
