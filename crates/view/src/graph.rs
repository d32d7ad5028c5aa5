//! Where the boxes of a layered graph go: a layer for each step of the longest path, few crossings, short edges.
//!
//! The classic four steps: layers by longest path; edges that pass over layers get a lane in each; the order within a
//! layer by sweeps of barycentres, the best seen kept; positions by least squares under the order. Nothing is random:
//! the same graph gives the same picture.

/// Where everything is.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// How many layers there are.
    pub layers: usize,
    /// The height of it all.
    pub height: f64,
    /// The layer and top of each box.
    pub boxes: Vec<(usize, f64)>,
    /// The middle of each lane an edge passes through, in the order of the edges, layer after layer.
    pub lanes: Vec<Vec<f64>>,
}

/// The room a passing edge takes.
const LANE: f64 = 10.0;
const SWEEPS: usize = 16;
const PULLS: usize = 24;

/// Lays out boxes of these heights. An edge runs from an earlier box to a later one; others are left without lanes.
/// `gap` is the room between two boxes of a layer. The last box, the answer, is alone in the last layer.
pub fn layout(heights: &[f64], edges: &[(usize, usize)], gap: f64) -> Layout {
    let layer_of = layers(heights.len(), edges);
    let mut graph = Graph::new(heights, edges, &layer_of);
    graph.untangle();
    graph.pull_together(gap);
    graph.finish(heights.len())
}

fn is_forward(edge: &(usize, usize), boxes: usize) -> bool {
    edge.0 < edge.1 && edge.1 < boxes
}

fn layers(boxes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut layer_of = vec![0; boxes];
    let mut forward: Vec<_> = edges.iter().filter(|edge| is_forward(edge, boxes)).collect();
    // By target: all that lead into a box are settled before it leads on.
    forward.sort_by_key(|(_, to)| *to);
    for (from, to) in forward {
        layer_of[*to] = layer_of[*to].max(layer_of[*from] + 1);
    }
    let deepest = layer_of.split_last().map(|(_, others)| others.iter().max().map_or(0, |deepest| deepest + 1));
    if let (Some(last), Some(deepest)) = (layer_of.last_mut(), deepest) {
        *last = deepest;
    }
    layer_of
}

/// A box or a lane.
struct Cell {
    height: f64,
    centre: f64,
    left: Vec<usize>,
    right: Vec<usize>,
}

/// Boxes first, in their order, then lanes. All indices in `order`, `left`, `right` and `lanes` are of cells that exist:
/// they are made in [`Graph::new`] and never removed.
struct Graph {
    cells: Vec<Cell>,
    order: Vec<Vec<usize>>,
    layer_of: Vec<usize>,
    lanes: Vec<Vec<usize>>,
}

impl Graph {
    fn new(heights: &[f64], edges: &[(usize, usize)], layer_of: &[usize]) -> Graph {
        let cell = |height| Cell { height, centre: 0.0, left: Vec::new(), right: Vec::new() };
        let layers = layer_of.iter().max().map_or(0, |last| last + 1);
        let mut order = vec![Vec::new(); layers];
        let mut cells: Vec<Cell> = heights.iter().map(|height| cell(*height)).collect();
        layer_of.iter().enumerate().for_each(|(place, layer)| order[*layer].push(place));
        let mut lanes = Vec::with_capacity(edges.len());
        for edge in edges {
            let mut path = Vec::new();
            if is_forward(edge, heights.len()) {
                let mut last = edge.0;
                for row in order.iter_mut().take(layer_of[edge.1]).skip(layer_of[edge.0] + 1) {
                    let lane = cells.len();
                    cells.push(cell(LANE));
                    row.push(lane);
                    path.push(lane);
                    join(&mut cells, last, lane);
                    last = lane;
                }
                join(&mut cells, last, edge.1);
            }
            lanes.push(path);
        }
        Graph { cells, order, layer_of: layer_of.to_vec(), lanes }
    }

    fn untangle(&mut self) {
        let mut best = (self.crossings(), self.order.clone());
        for sweep in 0..SWEEPS {
            self.sweep(sweep % 2 == 0);
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.order.clone());
            }
        }
        self.order = best.1;
    }

    /// Sorts each layer by the mean place of its neighbours on one side. Who has none stays about where it was.
    fn sweep(&mut self, rightwards: bool) {
        let layers = self.order.len();
        for step in 0..layers {
            let layer = if rightwards { step } else { layers - 1 - step };
            let places = self.places();
            let mut row: Vec<(f64, usize)> = self.order[layer]
                .iter()
                .map(|cell| {
                    let neighbours = if rightwards { &self.cells[*cell].left } else { &self.cells[*cell].right };
                    (mean(neighbours.iter().map(|other| places[*other])).unwrap_or(places[*cell]), *cell)
                })
                .collect();
            row.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.order[layer] = row.into_iter().map(|(_, cell)| cell).collect();
        }
    }

    /// The place of each cell in its layer, from 0 to 1, so that layers of different sizes compare.
    fn places(&self) -> Vec<f64> {
        let mut places = vec![0.0; self.cells.len()];
        for row in &self.order {
            row.iter().enumerate().for_each(|(place, cell)| places[*cell] = (place as f64 + 0.5) / row.len() as f64);
        }
        places
    }

    fn crossings(&self) -> usize {
        let mut place = vec![0; self.cells.len()];
        for row in &self.order {
            row.iter().enumerate().for_each(|(index, cell)| place[*cell] = index);
        }
        self.order.iter().map(|row| inversions(row.iter().flat_map(|cell| self.ends(*cell, &place)))).sum()
    }

    /// Where the edges of a cell end in the next layer, in order.
    fn ends(&self, cell: usize, place: &[usize]) -> Vec<usize> {
        let mut ends: Vec<usize> = self.cells[cell].right.iter().map(|other| place[*other]).collect();
        ends.sort_unstable();
        ends
    }

    /// Moves every cell towards the mean of its neighbours, as far as the order and the room allow.
    fn pull_together(&mut self, gap: f64) {
        for row in self.order.clone() {
            let total: f64 = row.iter().map(|cell| self.cells[*cell].height + gap).sum();
            let mut top = -total / 2.0;
            for cell in row {
                self.cells[cell].centre = top + self.cells[cell].height / 2.0;
                top += self.cells[cell].height + gap;
            }
        }
        for pull in 0..PULLS {
            let layers = self.order.len();
            for step in 0..layers {
                let row = self.order[if pull % 2 == 0 { step } else { layers - 1 - step }].clone();
                self.pull(&row, gap);
            }
        }
    }

    fn pull(&mut self, row: &[usize], gap: f64) {
        let mut offset = 0.0;
        let mut offsets = Vec::with_capacity(row.len());
        let mut wanted = Vec::with_capacity(row.len());
        for (place, cell) in row.iter().enumerate() {
            if let Some(above) = place.checked_sub(1).and_then(|above| row.get(above)) {
                offset += (self.cells[*above].height + self.cells[*cell].height) / 2.0 + gap;
            }
            let neighbours = self.cells[*cell].left.iter().chain(&self.cells[*cell].right);
            let centre = mean(neighbours.map(|other| self.cells[*other].centre)).unwrap_or(self.cells[*cell].centre);
            offsets.push(offset);
            wanted.push(centre - offset);
        }
        for ((cell, offset), centre) in row.iter().zip(offsets).zip(nondecreasing(&wanted)) {
            self.cells[*cell].centre = centre + offset;
        }
    }

    fn finish(self, boxes: usize) -> Layout {
        let top = |cell: &Cell| cell.centre - cell.height / 2.0;
        let highest = self.cells.iter().map(top).fold(f64::INFINITY, f64::min);
        let highest = if highest.is_finite() { highest } else { 0.0 };
        let height = self.cells.iter().map(|cell| cell.centre + cell.height / 2.0 - highest).fold(0.0, f64::max);
        let tops = self.cells.iter().take(boxes).map(|cell| top(cell) - highest);
        Layout {
            layers: self.order.len(),
            height,
            boxes: self.layer_of.iter().copied().zip(tops).collect(),
            lanes: self
                .lanes
                .iter()
                .map(|path| path.iter().map(|lane| self.cells[*lane].centre - highest).collect())
                .collect(),
        }
    }
}

fn join(cells: &mut [Cell], left: usize, right: usize) {
    cells[left].right.push(right);
    cells[right].left.push(left);
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// How many pairs stand in the wrong order.
fn inversions(values: impl Iterator<Item = usize>) -> usize {
    let mut seen: Vec<usize> = Vec::new();
    let mut count = 0;
    for value in values {
        let place = seen.partition_point(|other| *other <= value);
        count += seen.len() - place;
        seen.insert(place, value);
    }
    count
}

/// The nondecreasing sequence nearest to `wanted` in least squares: neighbours in the wrong order are pooled at their
/// mean until none are.
fn nondecreasing(wanted: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for value in wanted {
        let mut pool = (*value, 1);
        while let Some(last) = pools.pop_if(|last| last.0 > pool.0) {
            let count = last.1 + pool.1;
            pool = ((last.0 * last.1 as f64 + pool.0 * pool.1 as f64) / count as f64, count);
        }
        pools.push(pool);
    }
    pools.into_iter().flat_map(|(value, count)| std::iter::repeat_n(value, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn graph() -> impl Strategy<Value = (Vec<f64>, Vec<(usize, usize)>)> {
        (0_usize..24).prop_flat_map(|boxes| {
            let edges = prop::collection::vec((0..boxes.max(1), 0..boxes.max(1)), 0..40);
            (prop::collection::vec(10.0..80.0, boxes), edges)
        })
    }

    proptest! {
        #[test]
        fn boxes_never_overlap((heights, edges) in graph()) {
            let layout = layout(&heights, &edges, 8.0);
            for (a, (layer, top)) in layout.boxes.iter().enumerate() {
                prop_assert!(*top >= -1e-6 && top + heights[a] <= layout.height + 1e-6);
                for (b, (other_layer, other)) in layout.boxes.iter().enumerate().skip(a + 1) {
                    let apart = top + heights[a] <= other + 1e-6 || other + heights[b] <= top + 1e-6;
                    prop_assert!(layer != other_layer || apart, "{a} and {b}");
                }
            }
        }

        #[test]
        fn edges_run_from_left_to_right((heights, edges) in graph()) {
            let layout = layout(&heights, &edges, 8.0);
            for ((from, to), lanes) in edges.iter().zip(&layout.lanes) {
                if from < to {
                    prop_assert_eq!(lanes.len() + 1, layout.boxes[*to].0 - layout.boxes[*from].0);
                }
            }
        }

        #[test]
        fn nondecreasing_is_and_keeps_what_already_is(mut values in prop::collection::vec(-50.0..50.0, 0..20)) {
            prop_assert!(nondecreasing(&values).is_sorted());
            values.sort_by(f64::total_cmp);
            prop_assert_eq!(nondecreasing(&values), values);
        }
    }

    #[test]
    fn crossings_that_can_be_undone_are() {
        let (heights, edges) = ([20.0; 5], [(0, 3), (1, 2), (2, 4), (3, 4)]);
        let layout = layout(&heights, &edges, 8.0);
        let middle = |place: usize| layout.boxes[place].1;
        assert_eq!(middle(0) < middle(1), middle(3) < middle(2));
        assert_eq!(layout.boxes.iter().map(|(layer, _)| *layer).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
    }
}
