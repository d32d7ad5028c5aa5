//! The stock of word problems, by what they are about.

mod algebra;
mod asides;
mod basic;
mod chains;
mod measures;
mod money;
mod sharing;
mod times;

use super::tell::Story;

pub(super) use algebra::ALGEBRA;
pub(super) use asides::ASIDES;
pub(super) use basic::{BASIC, TWO_STEPS};
pub(super) use chains::chain;
pub(super) use measures::MEASURES;
pub(super) use money::MONEY;
pub(super) use sharing::SHARING;
pub(super) use times::TIMES;

/// The stock for problems of several steps.
pub(super) const LONGER: [&[Story]; 5] = [TWO_STEPS, MEASURES, MONEY, SHARING, TIMES];
