//! Figures of a study as SVG. Each stands alone on a white panel: no scripts, no fonts or images from elsewhere.

mod axis;
mod curves;
mod economy;
mod forest;
mod frame;
mod map;
mod stops;
#[cfg(test)]
mod tests;

pub use curves::curves;
pub use economy::economy;
pub use forest::forest;
pub use map::{Grid, map};
pub use stops::stops;

use super::compare::Comparison;

/// Colours that readers with any kind of colour vision can tell apart, dark enough for text on white.
const COLOURS: [&str; 8] = ["#0067a3", "#c04a00", "#00795a", "#a3438f", "#7a6000", "#56606b", "#2b2f86", "#8c3a3a"];

fn colour(place: usize) -> &'static str {
    // The remainder is a place.
    COLOURS[place % COLOURS.len()]
}

/// Where a comparison comes from: `table`, or `map: noise=0.2`.
fn origin(comparison: &Comparison) -> String {
    match (comparison.study.as_str(), comparison.regime.as_str()) {
        (study, "") => format!("Study {study}"),
        (study, regime) => format!("Study {study}, {regime}"),
    }
}
