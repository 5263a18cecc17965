"""Files on disk and in object stores: paths, atomic writes, checksums."""
