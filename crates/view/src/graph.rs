//! Where the boxes of a layered graph go: few crossings, short edges.
//!
//! The classic four steps: layers, by [`longest_paths`] or by [`columns`]; edges that pass over layers get a lane in each;
//! the order within a layer by sweeps of barycentres, the best seen kept; positions by least squares under the order.
//! Nothing is random: the same graph gives the same picture.

use std::collections::{BTreeMap, HashMap};

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

/// An edge from a box of one layer to a box of a later one. Others are left without lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutEdge {
    /// The box it comes from.
    pub from: usize,
    /// The box it goes to.
    pub to: usize,
    /// Edges of one bundle that leave the same box share their lanes.
    pub bundle: Option<&'static str>,
}

/// The room a passing edge takes.
const LANE: f64 = 10.0;
/// More boxes of one depth take several columns.
const MOST_ROWS: usize = 10;
const SWEEPS: usize = 16;
const PULLS: usize = 24;

/// Lays out boxes of these heights in these layers. `gap` is the room between two boxes of a layer.
pub fn layout(heights: &[f64], layer_of: &[usize], edges: &[LayoutEdge], gap: f64) -> Layout {
    let mut graph = Graph::new(heights, edges, layer_of);
    graph.untangle();
    graph.pull_together(gap);
    graph.finish(heights.len())
}

/// A layer for each step of the longest path. An edge runs from an earlier box to a later one; the last box, the answer, is
/// alone in the last layer.
pub fn longest_paths(boxes: usize, edges: &[LayoutEdge]) -> Vec<usize> {
    let mut layer_of = vec![0; boxes];
    let mut forward: Vec<_> = edges.iter().filter(|edge| edge.from < edge.to && edge.to < boxes).collect();
    // By target: all that lead into a box are settled before it leads on.
    forward.sort_by_key(|edge| edge.to);
    for LayoutEdge { from, to, .. } in forward {
        layer_of[*to] = layer_of[*to].max(layer_of[*from] + 1);
    }
    let deepest = layer_of.split_last().map(|(_, others)| others.iter().max().map_or(0, |deepest| deepest + 1));
    if let (Some(last), Some(deepest)) = (layer_of.last_mut(), deepest) {
        *last = deepest;
    }
    layer_of
}

/// A layer for each depth, and several where a depth has many boxes.
pub fn columns(depths: &[usize]) -> Vec<usize> {
    let mut by_depth: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    depths.iter().enumerate().for_each(|(place, depth)| by_depth.entry(*depth).or_default().push(place));
    let mut columns = vec![0; depths.len()];
    let mut first = 0;
    for places in by_depth.into_values() {
        let count = places.len().div_ceil(MOST_ROWS);
        let rows = places.len().div_ceil(count);
        places.iter().enumerate().for_each(|(row, place)| columns[*place] = first + row / rows);
        first += count;
    }
    columns
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
    fn new(heights: &[f64], edges: &[LayoutEdge], layer_of: &[usize]) -> Graph {
        let cell = |height| Cell { height, centre: 0.0, left: Vec::new(), right: Vec::new() };
        let layers = layer_of.iter().max().map_or(0, |last| last + 1);
        let mut order = vec![Vec::new(); layers];
        let mut cells: Vec<Cell> = heights.iter().map(|height| cell(*height)).collect();
        layer_of.iter().enumerate().for_each(|(place, layer)| order[*layer].push(place));
        let mut lanes = Vec::with_capacity(edges.len());
        let mut shared: HashMap<(usize, &str, usize), usize> = HashMap::new();
        let exists = |place: usize| place < heights.len() && place < layer_of.len();
        for LayoutEdge { from, to, bundle } in edges {
            let mut path = Vec::new();
            if exists(*from) && exists(*to) && layer_of[*from] < layer_of[*to] {
                let mut last = *from;
                for (layer, row) in order.iter_mut().enumerate().take(layer_of[*to]).skip(layer_of[*from] + 1) {
                    let known = bundle.and_then(|bundle| shared.get(&(*from, bundle, layer)).copied());
                    let lane = known.unwrap_or_else(|| {
                        cells.push(cell(LANE));
                        row.push(cells.len() - 1);
                        join(&mut cells, last, row[row.len() - 1]);
                        cells.len() - 1
                    });
                    shared.extend(bundle.map(|bundle| ((*from, bundle, layer), lane)));
                    path.push(lane);
                    last = lane;
                }
                join(&mut cells, last, *to);
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

    /// Sorts each layer by the mean place of its neighbours on one side. A cell without any stays about where it was.
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
mod tests;
