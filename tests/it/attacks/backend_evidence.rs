//! What a backend's answers prove: floods, empty backends, sources that lack keys.
