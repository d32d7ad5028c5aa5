//! What may be said beside a story: it makes the problem longer and changes nothing.

#[rustfmt::skip]
pub(in crate::compose) const ASIDES: &[&str] = &[
    "It has been raining since the morning, and nobody feels like going outside.",
    "Everybody agrees that this is a good idea.",
    "The neighbours, who moved in last spring, know nothing of this.",
    "Nobody has checked the figures so far.",
    "A local newspaper reported on it with the headline \"Numbers do not lie\".",
    "All of this was written down carefully in a green notebook.",
    "Last time something went wrong, because someone had not read the instructions to the end.",
    "The weather is fine.",
    "Some say that it could have been done more simply.",
    "For once, everything goes according to plan.",
    "Three people have tried to work this out before and did not succeed.",
    "They have been talking about it for two hours.",
    "One of them has an appointment at half past four.",
    "It is day {a:2-29} of the month.",
    "Somebody has counted {a:30-300} cars on the road outside, which has nothing to do with it.",
    "A cat is asleep on the windowsill.",
    "The answer will be needed tomorrow.",
    "Not everyone is happy about that, but nobody says so.",
    "The whole thing happened exactly as it is told here, even though it sounds rather unlikely.",
    "Afterwards they celebrate with cake.",
];
