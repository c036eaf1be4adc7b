//! The guard with scripted parts: what must always hold, race by race.

mod commit_window;
mod lookup;
mod marks;
mod rebuild;
mod set;
mod state;
mod storm;
