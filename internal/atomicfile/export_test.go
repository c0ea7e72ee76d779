package atomicfile

// MapErrorAs is MapError as on the given kind of system.
var MapErrorAs = mapError
