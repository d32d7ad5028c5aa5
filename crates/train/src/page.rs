//! A training run as one page: fills in what `lemon-view` draws.

use super::metrics::{BeforeAfter, Means, StepMetrics, Timing};
use lemon_credit::economy::FamilyReport;
use lemon_view::training::{FamilyPoint, RunMeans, StepPoint, StepSeconds, TeamChange, TrainingReport, html};

/// The page: how a run went, what credit told, where tokens and time went, and how teams changed.
pub fn page(
    title: &str,
    recipe_toml: &str,
    metrics: &[StepMetrics],
    timings: &[Timing],
    teams: &[BeforeAfter],
) -> String {
    html(&page_of(title, recipe_toml, metrics, timings, teams))
}

/// What the page shows.
pub fn page_of(
    title: &str,
    recipe_toml: &str,
    metrics: &[StepMetrics],
    timings: &[Timing],
    teams: &[BeforeAfter],
) -> TrainingReport {
    TrainingReport {
        title: title.to_owned(),
        recipe: recipe_toml.to_owned(),
        steps: metrics.iter().map(step).collect(),
        seconds: timings.iter().map(seconds).collect(),
        teams: teams.iter().map(team).collect(),
    }
}

fn step(metrics: &StepMetrics) -> StepPoint {
    StepPoint {
        step: metrics.step,
        rollouts: means(&metrics.rollouts),
        held_out: metrics.held_out.as_ref().map(means),
        rollout_tokens: metrics.rollout_tokens,
        credit_tokens: metrics.credit_tokens,
        worker_tokens: metrics.worker_tokens,
        reused: metrics.reused,
        families: metrics.families.iter().map(|(family, report)| (*family, point(report))).collect(),
        learning_rate: metrics.learning_rate,
        loss: metrics.loss,
        gradient_norm: metrics.gradient_norm,
        entropy: metrics.entropy,
        clipped: metrics.clipped,
        kl_old: metrics.kl_old,
        kl_reference: metrics.kl_reference,
        unmeasured: metrics.unmeasured,
        skipped: metrics.skipped,
    }
}

fn means(means: &Means) -> RunMeans {
    let Means { runs, reward, success, tokens, valid, agents, review, .. } = *means;
    RunMeans { runs, reward, success, tokens, valid, agents, review }
}

fn point(report: &FamilyReport) -> FamilyPoint {
    FamilyPoint {
        free: report.free,
        purchased: report.purchased,
        declined: report.declined,
        capped: report.capped,
        tokens: report.tokens,
        worth: report.worth,
        mean: report.mean,
        absolute: report.absolute,
        variance: report.variance,
        zeros: report.zeros,
    }
}

fn seconds(timing: &Timing) -> StepSeconds {
    let Timing { sampling, running, credit, update, other, .. } = *timing;
    StepSeconds { sampling, running, credit, update, other }
}

fn team(team: &BeforeAfter) -> TeamChange {
    let BeforeAfter { set, question, before, after } = team.clone();
    TeamChange { set, question, before, after }
}
