//! The HTTP server and its routes, over a keyspace with scripted parts.

mod routes;
mod server;
