use super::*;
use proptest::prelude::*;

const GOOD: &str = "\
@ apples
n: a 20..90, b 2..9*2
if: a > b, a - b >= 2
t: apples/apple, pears/pear
- {P} had {a} {t} and ate {b}.
+ {Q} likes [red|green] ones.
? How many {t} are left?
? What is left of {P.his} {t}?
= a-b
? What is twice that?
= a-b; $1*2
";

#[test]
fn a_block_is_read_as_it_stands() {
    let situations = parse(GOOD).unwrap();
    let [apples] = situations.as_slice() else { panic!("{situations:?}") };
    assert_eq!(apples.name, "apples");
    assert_eq!(apples.numbers[1], Number { name: 'b', low: 2, high: 9, multiple: 2 });
    assert_eq!(apples.conditions.len(), 2);
    assert_eq!(apples.things[1], Thing { many: "pears".into(), one: "pear".into() });
    assert_eq!((apples.stories.len(), apples.extras.len()), (1, 1));
    assert_eq!(apples.questions[0].texts.len(), 2);
    let twice = StepRule { left: Operand::Result(0), op: Op::Multiply, right: Operand::Constant(2) };
    assert_eq!(apples.questions[1].steps[1], twice);
}

/// The good block with one line changed: where and what is reported.
fn check(line: &str, instead: &str, expected: &str) {
    assert!(GOOD.contains(line), "{line}");
    let error = parse(&GOOD.replacen(line, instead, 1)).unwrap_err().in_file("x.txt").to_string();
    assert!(error.starts_with(expected), "{error}\nexpected {expected}");
    assert!(error.contains("(hint: "), "{error}");
}

#[test]
fn faults_name_the_place() {
    check("@ apples", "@ Apples", "x.txt:1: `Apples` is no name of a situation");
    check("@ apples\n", "", "x.txt:1: this line is in no block");
    check("a 20..90", "a 20-90", "x.txt:2: `a 20-90` declares no number");
    check("a 20..90", "a 0..90", "x.txt:2: `a 0..90` declares no number");
    check("a 20..90", "a 90..20", "x.txt:2: `a 90..20` declares no number");
    check("b 2..9*2", "b 2..9*0", "x.txt:2: `b 2..9*0` declares no number");
    check("b 2..9*2", "b 2..9*20", "x.txt:2: `b 2..9*20` declares no number");
    check("b 2..9*2", "a 2..9", "x.txt:2: `a` is declared twice");
    check("a > b", "a > c", "x.txt:3: the number `c` is not declared");
    check("a > b", "a b", "x.txt:3: `a b` compares nothing");
    check("pears/pear", "pears", "x.txt:4: `pears` is no thing");
    check("{a} {t}", "{c} {t}", "x.txt:5: `{c}` stands for nothing");
    check("{a} {t}", "{a} {u}", "x.txt:5: `{u}` stands for nothing");
    check("{P.his}", "{P.its}", "x.txt:8: `{P.its}` stands for nothing");
    check("[red|green]", "[red|green", "x.txt:6: a `[` is not closed");
    check("= a-b\n", "= a\n", "x.txt:9: `a` is no step");
    check("= a-b\n", "= a-b-b\n", "x.txt:9: `a-b-b` is no step");
    check("= a-b\n", "= a-c\n", "x.txt:9: the number `c` is not declared");
    check("= a-b\n", "= a-$1\n", "x.txt:9: `$1` is no earlier step");
    check("= a-b\n", "= a-b; a+b\n", "x.txt:9: nothing uses the result of step 1");
    check("? What is twice that?\n", "", "x.txt:10: no question stands before this answer");
    check("= a-b; $1*2\n", "", "x.txt:1: a question has no answer");
    check("- {P} had {a} {t} and ate {b}.\n", "", "x.txt:1: `apples` has no story or no question");
    check("+ {Q}", "* {Q}", "x.txt:6: `*` begins no line of a situation");
    check("? What is twice that?\n", "@ pears\n", "x.txt:10: a block begins inside another");
}

#[test]
fn names_are_unique() {
    let error = parse(&format!("{GOOD}\n{GOOD}")).unwrap_err();
    assert_eq!((error.line, error.message.as_str()), (13, "the name `apples` is taken"));
}

proptest! {
    #[test]
    fn never_panics(lines in prop::collection::vec("(@|n:|if:|t:|-|\\?|=)? ?[ab$1-9.*/é{}|\\[\\]+-]{0,12}", 0..8)) {
        let _ = parse(&format!("@ x\n{}", lines.join("\n")));
    }
}
