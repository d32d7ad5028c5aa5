//! Statistics: published examples, what always holds, and simulations.

mod coverage;
mod testing;
