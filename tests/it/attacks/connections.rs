//! Connections that hold descriptors, time or attention.
