//! Questions of knowledge in which something has to be reckoned.

use crate::compose::tell::{Story, story};

#[rustfmt::skip]
pub(in crate::compose) const STORIES: &[(&str, Story)] = &[
    ("elementary_mathematics", story("What is {a:12-99} × {b:3-9}?", "", "a*b", "")),
    ("elementary_mathematics", story("What is the value of {a:40-99} - {b:2-9} × {c:2-4}?", "", "a-b*c", "")),
    ("elementary_mathematics", story("{N} has {a:3-9} bags with {b:6-20} marbles each and gives {c:4-15} marbles away.", "Which expression's value is the number of marbles left?", "a*b-c", "")),
    ("elementary_mathematics", story("A school orders {a:6-30} boxes of {b:8-24} pencils.", "How many pencils is that?", "a*b", "")),
    ("elementary_mathematics", story("Which number is {b:10-90:10}% of {a:50-400:50}?", "", "a*b/100", "")),
    ("high_school_mathematics", story("<b:2-9>If {a:2-9}x - {c:2-20} = {=a*b-c}, then x =", "", "b", "")),
    ("high_school_mathematics", story("What is the sum of the first {a:8-40} positive integers?", "", "a*(a+1)/2", "")),
    ("high_school_mathematics", story("The function f is given by f(x) = {a:2-6}x^2 + {b:2-9}x.", "What is f({c:2-5})?", "a*c*c+b*c", "")),
    ("high_school_mathematics", story("How many codes of two different letters can be formed from {a:5-20} different letters?", "", "a*(a-1)", "")),
    ("college_mathematics", story("What is the determinant of the matrix with the rows ({a:2-9}, {b:1-5}) and ({c:1-5}, {d:3-9})?", "", "a*d-b*c", "")),
    ("college_mathematics", story("Let f(x) = {a:2-6}x^3. What is the value of the derivative of f at x = {b:1-4}?", "", "3*a*b*b", "")),
    ("abstract_algebra", story("How many elements does the direct product of the cyclic groups of order {a:2-9} and {b:2-9} have?", "", "a*b", "")),
    ("high_school_statistics", story("Five measurements are {a:10-40}, {b:10-40}, {c:10-40}, {d:10-40} and {e:10-40}.", "What is their mean?", "(a+b+c+d+e)/5", "")),
    ("high_school_statistics", story("A fair die is rolled {a:12-120:6} times.", "What is the expected number of sixes?", "a/6", "")),
    ("high_school_physics", story("A car of {a:800-1600:100} kg accelerates at {b:2-5} m/s².", "What net force acts on it?", "a*b", " N")),
    ("high_school_physics", story("A force of {a:10-90:5} N moves a crate {b:2-12} m in its own direction.", "How much work is done?", "a*b", " J")),
    ("conceptual_physics", story("A lamp draws {a:2-9} A at {b:6-24:6} V.", "What is its power?", "a*b", " W")),
    ("college_physics", story("<a:3-20 c:2-9>A voltage of {=a*c} V lies across a resistor of {a} ohms.", "What current flows through it?", "c", " A")),
    ("electrical_engineering", story("Two resistors of {a:3-30:3} ohms and {b:6-60:6} ohms are connected in parallel.", "What is their total resistance?", "a*b/(a+b)", " ohms")),
    ("electrical_engineering", story("Three resistors of {a:2-20}, {b:2-20} and {c:2-20} ohms are connected in series.", "What is their total resistance?", "a+b+c", " ohms")),
    ("high_school_chemistry", story("The molar mass of water is 18 g/mol.", "What is the mass of {a:2-12} moles of water?", "18*a", " g")),
    ("college_chemistry", story("An atom has {a:6-30} protons, {b:6-30} neutrons and as many electrons as protons.", "What is its mass number?", "a+b", "")),
    ("astronomy", story("Light takes about {a:4-9} years from a star to us. A second star is {b:2-5} times as far away.", "How many light-years away is the second star?", "a*b", "")),
    ("high_school_macroeconomics", story("In an economy, consumption is {a:400-900:50}, investment {b:100-300:50}, government spending {c:100-300:50}, and net exports are {d:10-60:10} (in billions).", "What is the gross domestic product?", "a+b+c+d", " billion")),
    ("high_school_microeconomics", story("A firm sells {a:20-90:10} units at a price of ${b:5-20}. Its total cost is ${c:60-95:5}.", "What is its economic profit?", "a*b-c", "$")),
    ("professional_accounting", story("A company has total assets of ${a:500-900:50},000 and liabilities of ${b:100-450:50},000.", "What is its equity in thousands of dollars?", "a-b", "$")),
    ("professional_accounting", story("A machine costs ${a:10-90:10},000, has no residual value and is depreciated in equal parts over {b:2-10} years.", "What is the yearly depreciation in dollars?", "a*1000/b", "$")),
    ("college_computer_science", story("A full binary tree has {a:8-64} leaves.", "How many nodes does it have in all?", "2*a-1", "")),
    ("high_school_computer_science", story("A picture has {a:20-90:10} by {b:20-90:10} pixels, and each pixel takes {c:1-4} bytes.", "How many bytes does the picture take?", "a*b*c", "")),
];
