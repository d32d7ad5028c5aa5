//! Where the names of points go, so that none covers another.

use crate::frame::Frame;

impl Frame {
    /// The area about a middle.
    pub(super) fn about((x, y): (f64, f64), width: f64, height: f64) -> Frame {
        Frame { left: x - width / 2.0, top: y - height / 2.0, right: x + width / 2.0, bottom: y + height / 2.0 }
    }

    fn meets(&self, other: &Frame) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn is_within(&self, other: &Frame) -> bool {
        self.left >= other.left && self.right <= other.right && self.top >= other.top && self.bottom <= other.bottom
    }
}

/// Something a label had better not cover, and how much it matters.
pub(super) struct Obstacle {
    pub area: Frame,
    pub weight: f64,
}

/// Directions from a point to its label, the ones readers expect first.
const DIRECTIONS: [(f64, f64); 16] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.8, -0.8),
    (0.8, 0.8),
    (0.0, -1.0),
    (0.0, 1.0),
    (-0.8, -0.8),
    (-0.8, 0.8),
    (0.9, -0.4),
    (0.9, 0.4),
    (-0.9, -0.4),
    (-0.9, 0.4),
    (0.4, -0.9),
    (0.4, 0.9),
    (-0.4, -0.9),
    (-0.4, 0.9),
];

/// How far from its point a label may be, in steps.
const DISTANCES: [f64; 9] = [10.0, 16.0, 24.0, 34.0, 46.0, 62.0, 82.0, 106.0, 140.0];

/// One area for each point that names of this size fit beside: inside `bounds` and clear of all other names. A point
/// for whose name there is no room has none.
pub(super) fn place(
    points: &[(f64, f64)],
    sizes: &[(f64, f64)],
    obstacles: &[Obstacle],
    bounds: &Frame,
) -> Vec<Option<Frame>> {
    let mut placed: Vec<Option<Frame>> = Vec::with_capacity(points.len());
    for (point, size) in points.iter().zip(sizes) {
        let free = candidates(*point, *size)
            .chain(shifted(*point, *size, bounds))
            .filter(|(_, area)| area.is_within(bounds) && placed.iter().flatten().all(|other| !area.meets(other)));
        let cost = |distance: f64, area: &Frame| {
            let covered = obstacles.iter().filter(|obstacle| area.meets(&obstacle.area));
            distance + covered.map(|obstacle| obstacle.weight).sum::<f64>()
        };
        let best = free
            .map(|(distance, area)| (cost(distance, &area), area))
            .min_by(|(cost, _), (other, _)| cost.total_cmp(other));
        placed.push(best.map(|(_, area)| area));
    }
    placed
}

fn candidates((x, y): (f64, f64), (width, height): (f64, f64)) -> impl Iterator<Item = (f64, Frame)> {
    DISTANCES.into_iter().flat_map(move |distance| {
        DIRECTIONS.into_iter().map(move |(right, down)| {
            // Beside the point, the label begins or ends there; above and below, it is centred.
            let side = if right == 0.0 { 0.0 } else { f64::signum(right) };
            let height_off = if right == 0.0 { f64::signum(down) } else { down };
            let middle = (x + right * distance + side * width / 2.0, y + down * distance + height_off * height / 2.0);
            (distance, Frame::about(middle, width, height))
        })
    })
}

/// Above and below a point, moved sideways into the bounds: for names nearly as wide as the picture. They cost more than any
/// place beside the point.
fn shifted((x, y): (f64, f64), (width, height): (f64, f64), bounds: &Frame) -> impl Iterator<Item = (f64, Frame)> {
    let (low, high) = (bounds.left + width / 2.0, bounds.right - width / 2.0);
    let middle = if low <= high { x.clamp(low, high) } else { x };
    DISTANCES.into_iter().flat_map(move |distance| {
        [-1.0, 1.0].into_iter().map(move |down: f64| {
            (distance + 20.0, Frame::about((middle, y + down * (distance + height / 2.0)), width, height))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Frame = Frame { left: 0.0, top: 0.0, right: 700.0, bottom: 400.0 };

    fn check(points: &[(f64, f64)], obstacles: &[Obstacle], expected: &[Option<(f64, f64)>]) {
        let placed = place(points, &vec![(60.0, 14.0); points.len()], obstacles, &BOUNDS);
        let corners: Vec<_> = placed.iter().map(|area| area.map(|area| (area.left, area.top))).collect();
        assert_eq!(corners, expected);
    }

    #[test]
    fn names_stand_beside_their_points() {
        check(&[], &[], &[]);
        check(&[(100.0, 100.0)], &[], &[Some((110.0, 93.0))]);
        // At the right edge there is room to the left.
        check(&[(690.0, 100.0)], &[], &[Some((620.0, 93.0))]);
        // Something in the way.
        let line = || Obstacle { area: Frame { left: 100.0, top: 99.0, right: 300.0, bottom: 101.0 }, weight: 30.0 };
        check(&[(100.0, 100.0)], &[line()], &[Some((30.0, 93.0))]);
        // A name that fits nowhere beside its point stands above it, within the picture.
        let placed = place(&[(300.0, 100.0)], &[(690.0, 14.0)], &[], &BOUNDS);
        assert_eq!(placed, [Some(Frame { left: 0.0, top: 76.0, right: 690.0, bottom: 90.0 })]);
        // Not on the picture at all.
        check(&[(-500.0, -500.0)], &[], &[None]);
    }

    proptest! {
        #[test]
        fn names_never_overlap(points in prop::collection::vec((0.0..700.0, 0.0..400.0), 0..40)) {
            let placed = place(&points, &vec![(80.0, 14.0); points.len()], &[], &BOUNDS);
            prop_assert_eq!(placed.len(), points.len());
            let areas: Vec<Frame> = placed.into_iter().flatten().collect();
            for (place, area) in areas.iter().enumerate() {
                prop_assert!(area.is_within(&BOUNDS));
                prop_assert!(areas.iter().skip(place + 1).all(|other| !area.meets(other)));
            }
        }

        #[test]
        fn a_dozen_names_find_room_even_on_one_spot(x in 40.0..660.0, y in 30.0..370.0) {
            let placed = place(&[(x, y); 12], &[(80.0, 14.0); 12], &[], &BOUNDS);
            prop_assert!(placed.iter().all(Option::is_some));
        }
    }
}
