//! Requests and responses that hold memory.
