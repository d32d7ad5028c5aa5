//! The episodes of a step: which tasks, and which noise seeds.

use crate::episode::Episode;
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
    let (tasks, group) = (settings.tasks.max(1), settings.group.max(1));
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
            episodes.push(Episode::new(case, seed, drawn("writer"), memory));
        }
    }
    episodes
}
