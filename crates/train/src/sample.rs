//! The episodes of a step: which tasks, and which noise seeds.

use crate::episode::{Branch, Episode};
use crate::recipe::Recipe;
use lemon_exec::ReplyCache;
use lemon_rollout::Case;
use lemon_sft::sft::order;
use lemon_sft::teach::draw;
use std::sync::Arc;

/// The purpose of a noise seed. The word is part of every seed: with another, old runs could not be repeated.
const NOISE: &str = "luck"; // alias: part of a seed

/// The episodes of a step, from 1, before anything is written for them.
pub(crate) fn episodes(cases: &[Case], recipe: &Recipe, step: u64) -> Vec<Episode> {
    let settings = &recipe.rollouts;
    // Of a tree only the trunk is written at first.
    let (tasks, group) = (settings.tasks.max(1), (settings.group / settings.branches.max(1)).max(1));
    let mut episodes = Vec::with_capacity(tasks * group);
    let mut pass = None;
    for task in 0..tasks {
        // Passes through all tasks follow one another, each in an order of its own.
        let place = (step - 1) as usize * tasks + task;
        let number = (place / cases.len()) as u64;
        if pass.as_ref().is_none_or(|(known, _)| *known != number) {
            pass = Some((number, order(cases.len(), recipe.seed, number)));
        }
        let chosen = pass.as_ref().and_then(|(_, order)| order.get(place % cases.len())).copied();
        let Some(case) = chosen else { continue };
        let memory = Arc::new(ReplyCache::default());
        for member in 0..group {
            let drawn = |purpose: &str| {
                draw(recipe.seed, &[purpose, &step.to_string(), &task.to_string(), &member.to_string()])
            };
            let (seed, memory) = if settings.shared_noise {
                (draw(recipe.seed, &[NOISE, &step.to_string(), &task.to_string()]), memory.clone())
            } else {
                (drawn(NOISE), Arc::new(ReplyCache::default()))
            };
            let episode = Episode::new(case, seed, drawn("writer"), memory);
            episodes.push(Episode { group: task, ..episode });
        }
    }
    episodes
}

/// The branches of trunks that are written, each with the place of its trunk. The fork is a decision that is drawn without regard
/// to the text; a trunk that has ended before it stays alone. So the trunk is one draw among equals from the fork on.
pub(crate) fn branches(trunks: &mut [Episode], recipe: &Recipe, step: u64) -> Vec<(usize, Episode)> {
    let branches = recipe.rollouts.branches;
    let mut forks = Vec::new();
    let decisions = |episode: &Episode| -> Vec<usize> {
        let forced = episode.rounds.first().map_or(&[][..], |round| round.sample.forced.as_slice());
        forced.iter().enumerate().filter(|(_, forced)| !**forced).map(|(at, _)| at).collect()
    };
    let most = recipe.rollouts.decisions.max(1) as u64;
    for (at, trunk) in trunks.iter_mut().enumerate() {
        let drawn = |purpose: &str, number: usize| {
            draw(recipe.seed, &[purpose, &step.to_string(), &at.to_string(), &number.to_string()])
        };
        let Some(fork) = decisions(trunk).get((drawn("fork", 0) % most) as usize).copied() else { continue };
        let branch = Branch { tree: at, branches, fork, is_trunk: true };
        trunk.branch = Some(branch);
        for number in 1..branches {
            let mut episode = trunk.clone();
            (episode.rounds, episode.run) = (Vec::new(), None);
            episode.writer_seed = drawn("branch", number);
            episode.branch = Some(Branch { is_trunk: false, ..branch });
            if !recipe.rollouts.shared_noise {
                (episode.seed, episode.memory) = (drawn(NOISE, number), Arc::new(ReplyCache::default()));
            }
            forks.push((at, episode));
        }
    }
    forks
}
