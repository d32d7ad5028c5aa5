//! Seeded randomness and statistics, for every other crate.
//!
//! - [`Random`]: the one generator. The same seed gives the same sequence on every machine and in every version.
//! - Seeds from names: [`seed_of`], [`mixed_seed`], [`hashed_seed`]; hashes that stay the same: [`fnv1a`], [`mix`].
//! - [`distribution`]: the normal distribution and Student's t.
//! - [`stats`]: intervals and tests for runs on a sample of items.
//! - [`solve`], [`logistic`], [`logit`], [`mean_of`]: small numerics.

pub mod distribution;
mod linear;
mod random;
mod seed;
pub mod stats;

pub use linear::{inverse, logistic, logit, mean_of, solve};
pub use random::{Bounds, Random};
pub use seed::{fnv1a, fnv1a_from, hashed_seed, mix, mixed_seed, seed_of, splitmix};
