//! Figures of a study as SVG. Each stands alone on a white panel: no scripts, no fonts or images from elsewhere.

mod curves;
mod economy;
mod forest;
mod map;
mod panel;
mod stops;

pub use curves::{CurveLine, curves};
pub use economy::{FamilyBar, economy};
pub use forest::{ForestRow, forest};
pub use map::{Grid, map};
pub use stops::{ArmBars, StopGroup, stops};

/// Colours that readers with any kind of colour vision can tell apart, dark enough for text on white.
const COLOURS: [&str; 8] = ["#0067a3", "#c04a00", "#00795a", "#a3438f", "#7a6000", "#56606b", "#2b2f86", "#8c3a3a"];

fn colour(place: usize) -> &'static str {
    // The remainder is a place.
    COLOURS[place % COLOURS.len()]
}

/// A mean with its 95 % interval. `None`: there are too few numbers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MeanInterval {
    pub mean: Option<f64>,
    pub interval: Option<[f64; 2]>,
}

impl MeanInterval {
    /// Everything that has to be on an axis.
    fn values(self) -> impl Iterator<Item = f64> {
        self.mean.into_iter().chain(self.interval.into_iter().flatten())
    }
}

/// A paired difference and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PairedMean {
    /// The mean difference.
    pub estimate: MeanInterval,
    /// p after correction.
    pub p: Option<f64>,
    /// Whether that is called significant.
    pub is_significant: bool,
}

impl PairedMean {
    /// The sign of the difference where its interval does not reach zero.
    fn clear_sign(&self) -> Option<f64> {
        let [low, high] = self.estimate.interval?;
        (low > 0.0 || high < 0.0).then(|| low.signum())
    }
}
