//! The frame of a chart: where its plot is, with grid lines, ticks and their labels.

use crate::markup::Markup;
use crate::measure::width;
use crate::scale::Tick;
use crate::svg::{Anchor, line, text};

/// The size of labels in pixels.
const LABEL: f64 = 12.0;

/// The area of a plot, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// Its left side.
    pub left: f64,
    pub top: f64,
    /// Its right side.
    pub right: f64,
    pub bottom: f64,
}

/// A label at a pixel.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// The pixel.
    pub at: f64,
    /// What stands there.
    pub text: String,
}

/// The labels of ticks, written from a value and the step to the next one.
pub fn labels(ticks: Vec<Tick>, write: impl Fn(f64, f64) -> String) -> Vec<Label> {
    ticks.into_iter().map(|tick| Label { at: tick.at, text: write(tick.value, tick.step) }).collect()
}

impl Frame {
    /// Level grid lines with their labels at the left.
    pub fn rows(&self, labels: &[Label]) -> Markup {
        let row = |label: &Label| {
            let grid = line("grid", (self.left, label.at), (self.right, label.at));
            [grid, text("tick", (self.left - 7.0, label.at + 4.0), Anchor::End, &label.text)]
        };
        labels.iter().flat_map(row).collect()
    }

    /// Upright grid lines with their labels below.
    pub fn columns(&self, labels: &[Label]) -> Markup {
        let column = |label: &Label| {
            let grid = line("grid", (label.at, self.top), (label.at, self.bottom));
            [grid, text("tick", (label.at, self.bottom + 16.0), Anchor::Middle, &label.text)]
        };
        labels.iter().flat_map(column).collect()
    }

    /// The axis below the plot: a mark for each label. A label that would cover the one before it is left out; `room` is the
    /// space at the right of the plot that the last one may use.
    pub fn axis(&self, labels: &[Label], room: f64) -> Markup {
        let mut axis = Markup::from(self.base());
        let mut free_from = f64::NEG_INFINITY;
        for Label { at, text: content } in labels {
            axis.push(line("axis", (*at, self.bottom), (*at, self.bottom + 4.0)));
            let half = width(content, LABEL) / 2.0;
            let at = at.min(self.right + room - half);
            if at - half > free_from {
                axis.push(text("tick", (at, self.bottom + 17.0), Anchor::Middle, content));
                free_from = at + half + 6.0;
            }
        }
        axis
    }

    /// The line below the plot.
    pub fn base(&self) -> crate::svg::Element {
        line("axis", (self.left, self.bottom), (self.right, self.bottom))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_never_cover_each_other_or_leave_the_picture() {
        let frame = Frame { left: 0.0, top: 0.0, right: 100.0, bottom: 50.0 };
        let label = |at| Label { at, text: "1,000".to_owned() };
        let axis = frame.axis(&[label(0.0), label(10.0), label(60.0), label(100.0)], 0.0).into_string();
        assert_eq!(axis.matches("<text").count(), 2, "{axis}");
        assert_eq!(axis.matches("<path").count(), 5, "{axis}");
        assert_eq!(frame.rows(&[label(5.0)]).into_string().matches('M').count(), 1);
    }
}
