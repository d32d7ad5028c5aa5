//! What may be said before a question of knowledge. It makes the question longer and tells nothing.

/// `(field)` is the subject in words; the other blanks are those of stories.
#[rustfmt::skip]
pub(super) const SCENES: &[&str] = &[
    "{N} is preparing for an examination in (field) and has {a:2-9} days left.",
    "In a seminar on (field), {N} and {M} cannot agree on the following.",
    "The following comes from a sheet of {a:10-40} exercises. No books are allowed.",
    "At a quiz night in {@city}, team {a:2-12} is leading. The host reads out the next card slowly, and nobody may use a telephone.",
    "This was asked in the final paper of a course in (field), where it was worth {a:2-10} points.",
    "{N} teaches (field). {He} has noticed that {a:20-60}% of {his} students get the following wrong, although it is in the textbook.",
    "Consider the statement of the problem carefully, for it is not as simple as it looks.",
    "A reader of a magazine writes: \"My {@relative} and I had a long argument yesterday evening about a matter that we could not settle, even after looking into {a:2-5} old encyclopaedias. Please decide it for us.\" The question was this.",
    "Choose the best answer.",
    "<a:2-40>Questions {=a} to {=a+3} concern (field).",
    "An interviewer wants to find out whether a candidate has a sound foundation in (field). The candidate, who graduated {a:2-9} years ago and has worked in another profession ever since, is given one minute for the following question and must not ask for clarification.",
    "A student who missed {a:2-6} lectures borrows the notes of a friend. On the first page there is a question without an answer.",
    "{M} claims to know everything about (field). {N} doubts it and asks:",
    "The editors of an encyclopaedia check an entry before it is printed. Everything in it has been confirmed by at least {a:2-4} independent sources, except for a single point, which one of the editors remembers differently. The point is the following.",
    "Recall what you know about (field).",
    "In {b:1950-2015}, a survey of {a:200-900:50} people contained the following item.",
];
