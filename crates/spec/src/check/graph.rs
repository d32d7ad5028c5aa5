//! Paths between agents.

use std::collections::VecDeque;

/// The shortest path along the references from `start` to `goal`, both included; `[start]` if they are the same.
pub(super) fn path(parents: &[Vec<usize>], start: usize, goal: usize) -> Option<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut came_from = vec![UNSEEN; parents.len()];
    let mut queue = VecDeque::from([start]);
    *came_from.get_mut(start)? = start;
    while let Some(agent) = queue.pop_front() {
        if agent == goal {
            break;
        }
        for &parent in parents.get(agent)? {
            if let Some(from @ &mut UNSEEN) = came_from.get_mut(parent) {
                *from = agent;
                queue.push_back(parent);
            }
        }
    }
    if *came_from.get(goal)? == UNSEEN {
        return None;
    }
    let mut path = vec![goal];
    let mut agent = goal;
    while agent != start {
        agent = *came_from.get(agent)?;
        path.push(agent);
    }
    path.reverse();
    Some(path)
}
