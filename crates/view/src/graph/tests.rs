use super::*;
use proptest::prelude::*;

fn alone((from, to): (usize, usize)) -> LayoutEdge {
    LayoutEdge { from, to, bundle: None }
}

fn bundled((from, to): (usize, usize)) -> LayoutEdge {
    LayoutEdge { from, to, bundle: Some(["above", "below"][to % 2]) }
}

/// Lays out a graph by its longest paths.
fn by_paths(heights: &[f64], edges: &[(usize, usize)]) -> Layout {
    let edges: Vec<LayoutEdge> = edges.iter().copied().map(alone).collect();
    layout(heights, &longest_paths(heights.len(), &edges), &edges, 8.0)
}

fn graph() -> impl Strategy<Value = (Vec<f64>, Vec<(usize, usize)>)> {
    (0_usize..24).prop_flat_map(|boxes| {
        let edges = prop::collection::vec((0..boxes.max(1), 0..boxes.max(1)), 0..40);
        (prop::collection::vec(10.0..80.0, boxes), edges)
    })
}

proptest! {
    #[test]
    fn boxes_never_overlap((heights, edges) in graph()) {
        let layout = by_paths(&heights, &edges);
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
        let layout = by_paths(&heights, &edges);
        for ((from, to), lanes) in edges.iter().zip(&layout.lanes) {
            if from < to {
                prop_assert_eq!(lanes.len() + 1, layout.boxes[*to].0 - layout.boxes[*from].0);
            }
        }
    }

    #[test]
    fn boxes_and_shared_lanes_never_overlap(
        boxes in prop::collection::vec((20.0..150.0, 0_usize..5), 0..40),
        ends in prop::collection::vec((0_usize..40, 0_usize..40), 0..60),
    ) {
        let (heights, depths): (Vec<f64>, Vec<usize>) = boxes.into_iter().unzip();
        let exists = |place: usize| place < depths.len();
        let forward = |(from, to): &(usize, usize)| exists(*from) && exists(*to) && depths[*from] < depths[*to];
        let edges: Vec<LayoutEdge> = ends.into_iter().filter(forward).map(bundled).collect();
        let layout = layout(&heights, &columns(&depths), &edges, 14.0);
        let spans = layout.boxes.iter().zip(&heights).map(|((column, top), height)| (*column, *top, top + height));
        let mut lanes: BTreeMap<(usize, &str, usize), f64> = BTreeMap::new();
        for (LayoutEdge { from, to, bundle }, path) in edges.iter().zip(&layout.lanes) {
            let layers = (layout.boxes[*from].0 + 1)..layout.boxes[*to].0;
            prop_assert_eq!(layers.len(), path.len());
            for (layer, middle) in layers.zip(path) {
                let shared = *lanes.entry((*from, bundle.unwrap(), layer)).or_insert(*middle);
                prop_assert_eq!(shared, *middle);
            }
        }
        let lanes = lanes.iter().map(|((_, _, column), middle)| (*column, middle - 5.0, middle + 5.0));
        let all: Vec<(usize, f64, f64)> = spans.chain(lanes).collect();
        for (place, (column, top, bottom)) in all.iter().enumerate() {
            prop_assert!(*top >= -1e-6 && *bottom <= layout.height + 1e-6 && *column < layout.layers);
            for (other, its_top, its_bottom) in &all[place + 1..] {
                prop_assert!(column != other || *bottom <= its_top + 1e-6 || *its_bottom <= top + 1e-6);
            }
        }
        for LayoutEdge { from, to, .. } in edges {
            prop_assert!(layout.boxes[from].0 < layout.boxes[to].0);
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
    let layout = by_paths(&[20.0; 5], &[(0, 3), (1, 2), (2, 4), (3, 4)]);
    let middle = |place: usize| layout.boxes[place].1;
    assert_eq!(middle(0) < middle(1), middle(3) < middle(2));
    assert_eq!(layout.boxes.iter().map(|(layer, _)| *layer).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
}

#[test]
fn crossings_of_bundles_are_undone() {
    let edges = [(0, 3), (1, 2), (2, 4), (3, 4)].map(bundled);
    let layout = layout(&[20.0; 5], &columns(&[0, 0, 1, 1, 2]), &edges, 14.0);
    let top = |place: usize| layout.boxes[place].1;
    assert_eq!(top(0) < top(1), top(3) < top(2));
}
