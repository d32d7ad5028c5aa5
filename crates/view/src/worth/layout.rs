//! Where cards and lines go: columns by depth, the order in a column by medians, heights by least squares under it.
//!
//! A line that passes over a column has a lane there, which lines of one kind from one card share. Nothing is random: the
//! same team gives the same picture.

use std::collections::BTreeMap;

/// Where everything is.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// How many columns there are.
    pub layers: usize,
    /// The height of it all.
    pub height: f64,
    /// The column and top of each box.
    pub boxes: Vec<(usize, f64)>,
    /// The middle of each lane.
    pub lanes: BTreeMap<Lane, f64>,
}

/// A line to lay out, from a lesser depth to a greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The box it comes from.
    pub from: usize,
    /// The box it goes to.
    pub to: usize,
    /// What it looks like: lines that look different cannot share a lane.
    pub kind: &'static str,
}

/// Which lane: the box its lines come from, their kind and the column.
pub type Lane = (usize, &'static str, usize);

/// The room a passing line takes.
const LANE_HEIGHT: f64 = 10.0;
/// The room between two boxes of a column.
const GAP: f64 = 14.0;
/// More boxes of one depth take several columns.
const MOST_ROWS: usize = 10;
const SWEEPS: usize = 8;
const PULLS: usize = 6;

/// Lays out boxes of these heights and depths. Edges are between boxes that exist.
pub fn layout(heights: &[f64], depths: &[usize], edges: &[Edge]) -> Layout {
    let mut graph = Graph::new(heights, columns(depths), edges);
    graph.untangle();
    graph.pull_together();
    graph.finish()
}

/// The column of each box.
fn columns(depths: &[usize]) -> Vec<usize> {
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
    column_of: Vec<usize>,
    lanes: BTreeMap<Lane, usize>,
}

impl Graph {
    fn new(heights: &[f64], column_of: Vec<usize>, edges: &[Edge]) -> Graph {
        let cell = |height| Cell { height, centre: 0.0, left: Vec::new(), right: Vec::new() };
        let mut cells: Vec<Cell> = heights.iter().map(|height| cell(*height)).collect();
        let mut order = vec![Vec::new(); column_of.iter().max().map_or(0, |last| last + 1)];
        column_of.iter().enumerate().for_each(|(place, column)| order[*column].push(place));
        let mut lanes = BTreeMap::new();
        for Edge { from, to, kind } in edges {
            let mut last = *from;
            for (column, row) in order.iter_mut().enumerate().take(column_of[*to]).skip(column_of[*from] + 1) {
                last = *lanes.entry((*from, *kind, column)).or_insert_with(|| {
                    cells.push(cell(LANE_HEIGHT));
                    let lane = cells.len() - 1;
                    row.push(lane);
                    join(&mut cells, last, lane);
                    lane
                });
            }
            join(&mut cells, last, *to);
        }
        Graph { cells, order, column_of, lanes }
    }

    /// Orders the columns by sweeps; the order with the fewest crossings stays.
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

    /// Sorts each column by the median place of its neighbours on one side. Who has none stays about where it was.
    fn sweep(&mut self, rightwards: bool) {
        for column in along(self.order.len(), rightwards) {
            let places = self.places();
            let wanted = |cell: usize| {
                let Cell { left, right, .. } = &self.cells[cell];
                let neighbours = if rightwards { left } else { right };
                median(neighbours.iter().map(|other| places[*other]).collect()).unwrap_or(places[cell])
            };
            let mut row: Vec<(f64, usize)> = self.order[column].iter().map(|cell| (wanted(*cell), *cell)).collect();
            row.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.order[column] = row.into_iter().map(|(_, cell)| cell).collect();
        }
    }

    /// The place of each cell in its column, from 0 to 1, so that columns of different sizes compare.
    fn places(&self) -> Vec<f64> {
        let mut places = vec![0.0; self.cells.len()];
        for row in &self.order {
            row.iter().enumerate().for_each(|(place, cell)| places[*cell] = (place as f64 + 0.5) / row.len() as f64);
        }
        places
    }

    /// How many pairs of lines cross, column by column.
    fn crossings(&self) -> usize {
        let places = self.places();
        let mut crossings = 0;
        for row in &self.order {
            // The ends of the lines passed so far, in order: each that lies below a new one's end crosses it.
            let mut passed: Vec<f64> = Vec::new();
            for cell in row {
                let mut ends: Vec<f64> = self.cells[*cell].right.iter().map(|other| places[*other]).collect();
                ends.sort_by(f64::total_cmp);
                for end in ends {
                    let place = passed.partition_point(|other| *other <= end);
                    crossings += passed.len() - place;
                    passed.insert(place, end);
                }
            }
        }
        crossings
    }

    /// Moves every cell towards the mean of its neighbours, as far as the order and the room allow.
    fn pull_together(&mut self) {
        for row in self.order.clone() {
            let total: f64 = row.iter().map(|cell| self.cells[*cell].height + GAP).sum();
            let mut top = -total / 2.0;
            for cell in row {
                self.cells[cell].centre = top + self.cells[cell].height / 2.0;
                top += self.cells[cell].height + GAP;
            }
        }
        for pull in 0..PULLS {
            for column in along(self.order.len(), pull % 2 == 0) {
                self.pull(&self.order[column].clone());
            }
        }
    }

    fn pull(&mut self, row: &[usize]) {
        // Without its offset, a cell only has to be no higher than the one above it.
        let mut offset = 0.0;
        let mut wanted = Vec::with_capacity(row.len());
        for cell in row {
            let Cell { height, centre, left, right } = &self.cells[*cell];
            let neighbours: Vec<f64> = left.iter().chain(right).map(|other| self.cells[*other].centre).collect();
            let mean = neighbours.iter().sum::<f64>() / neighbours.len() as f64;
            let target = if neighbours.is_empty() { *centre } else { mean };
            offset += height / 2.0;
            wanted.push((target - offset, offset));
            offset += height / 2.0 + GAP;
        }
        let settled = nondecreasing(wanted.iter().map(|(target, _)| *target));
        for ((cell, (_, offset)), centre) in row.iter().zip(wanted).zip(settled) {
            self.cells[*cell].centre = centre + offset;
        }
    }

    fn finish(self) -> Layout {
        let top = |cell: &Cell| cell.centre - cell.height / 2.0;
        let highest = self.cells.iter().map(top).reduce(f64::min).unwrap_or(0.0);
        let height = self.cells.iter().map(|cell| cell.centre + cell.height / 2.0 - highest).fold(0.0, f64::max);
        let tops = self.cells.iter().map(|cell| top(cell) - highest);
        Layout {
            layers: self.order.len(),
            height,
            boxes: self.column_of.iter().copied().zip(tops).collect(),
            lanes: self.lanes.iter().map(|(key, lane)| (*key, self.cells[*lane].centre - highest)).collect(),
        }
    }
}

fn join(cells: &mut [Cell], left: usize, right: usize) {
    cells[left].right.push(right);
    cells[right].left.push(left);
}

fn along(columns: usize, rightwards: bool) -> impl Iterator<Item = usize> {
    (0..columns).map(move |step| if rightwards { step } else { columns - 1 - step })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().saturating_sub(1) / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

/// The nondecreasing sequence nearest to `wanted` in least squares: neighbours in the wrong order are pooled at their
/// mean until none are.
fn nondecreasing(wanted: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for value in wanted {
        let mut pool = (value, 1);
        while let Some((mean, count)) = pools.pop_if(|last| last.0 > pool.0) {
            let both = count + pool.1;
            pool = ((mean * count as f64 + pool.0 * pool.1 as f64) / both as f64, both);
        }
        pools.push(pool);
    }
    pools.into_iter().flat_map(|(value, count)| std::iter::repeat_n(value, count)).collect()
}
