//! Instances that differ in their configuration, and a Redis that forgets.
