//! Problems in the manner of examinations, for sets with options.

use crate::compose::tell::{Story, story};

#[rustfmt::skip]
pub(in crate::compose) const ALGEBRA: &[Story] = &[
    story("<b:2-20>If {a:2-9}x + {c:3-30} = {=a*b+c}[, what is the value of x|, find x]?", "", "b", ""),
    story("<c:2-15 d:2-15>If x + y = {=c+d} and x - y = {=c-d}, what is the value of {a:2-6}x[?| ?]", "", "a*c", ""),
    story("<b:3-20 c:3-20>The sum of two numbers is {=b+c} and their product is {=b*c}.", "What is the sum of their squares?", "b*b+c*c", ""),
    story("<a:4-60>The sum of three consecutive [integers|whole numbers] is {=3*a}.", "What is the largest of them?", "a+1", ""),
    story("<a:3-40>The average of five consecutive odd numbers is {=2*a+5}.", "What is the smallest of them?", "2*a+1", ""),
    story("A and B can do a piece of work in {a:6-30:3} days and {b:6-60:6} days respectively.", "In how many days will they finish it working together?", "a*b/(a+b)", " days"),
    story("A pipe fills a cistern in {a:4-20} hours and a leak empties the full cistern in {b:10-60:5} hours.", "In how many hours will the cistern be filled if both are open?", "a*b/(b-a)", " hours"),
    story("<c:15-60>A train {=5*c} metres long passes a pole in {a:6-20} seconds; its speed in km/hr is [sought|to be found].", "What is the speed of the train?", "c*18/a", " km/hr"),
    story("A man sells an article for ${a:60-900:30} and gains {b:10-50:10}%.", "What was its cost price?", "a*100/(100+b)", "$"),
    story("By selling a watch for ${a:90-900:30} a trader loses {b:10-40:10}%. He wants to gain {c:10-30:10}% instead.", "At what price should he sell it?", "a*100/(100-b)*(100+c)/100", "$"),
    story("<c:2-8>The simple interest on ${a:500-5000:100} at {b:4-12}% per annum amounts to ${=a*b*c/100}.", "For how many years was the sum invested?", "c", " years"),
    story("A sum of money at simple interest doubles itself in {a:5-25:5} years.", "What is the rate percent per annum?", "100/a", "%"),
    story("<c:3-8>The ratio of the ages of A and B is {a:2-5}:{b:3-7}. The sum of their ages is {=a*c+b*c} years.", "What will be the age of B after {d:4-10} years?", "b*c+d", " years"),
    story("<d:20-90>In an election between two candidates, one got {a:55-80:5}% of the votes and won by {=d*2*a-d*100} votes.", "What was the total number of votes?", "100*d", ""),
    story("<b:2-9>If {a:5-20:5}% of a number is {=a*b}, what is {c:20-90:10}% of the number?", "", "b*c", ""),
    story("<a:12-30 b:4-18 c:2-6>A boat goes {=a*c} km downstream and {=b*c} km upstream in {c} hours each.", "What is the speed of the stream in km/hr?", "(a-b)/2", " km/hr"),
    story("<a:8-25 b:8-25>Two trains, {=a*10} m and {=b*10} m long, run in opposite directions and cross each other in {c:4-20} seconds at a relative speed of {=(a+b)*10/c} m/s. A third train is {d:100-300:10} m long.", "How many seconds does the third train need to pass a pole at that same speed?", "d*c/((a+b)*10)", " s"),
    story("<d:1-3>The average of {a:5-12} observations is {b:20-60}. It was found later that one observation was read as {c:20-60} instead of {=c+a*d}.", "What is the correct average?", "b+d", ""),
    story("A shopkeeper marks his goods {a:20-60:10}% above cost and allows a discount of {b:10-30:10}% on the marked price of ${c:100-900:100}.", "What does a customer pay?", "c-c*b/100", "$"),
    story("In how many ways can a committee of 2 be chosen from {a:5-20} [members|persons]?", "", "a*(a-1)/2", ""),
    story("In how many different ways can the first, second and third prize be given to {a:5-12} [runners|pupils], if nobody gets two?", "", "a*(a-1)*(a-2)", ""),
    story("<b:2-9>The H.C.F. of two numbers is {a:3-12} and their L.C.M. is {=a*b*(b+1)}. One of the numbers is {=a*b}.", "What is the other?", "a*(b+1)", ""),
    story("<b:3-12>What is the next number in the series {a:2-9}, {=a+b}, {=a+2*b}, {=a+3*b}, ... ?", "", "a+4*b", ""),
    story("<b:2-4>What is the next number in the sequence {a:2-6}, {=a*b}, {=a*b*b}, ... ?", "", "a*b*b*b", ""),
    story("<b:3-15>The length of a rectangle is {a:2-4} times its width. Its area is {=a*b*b} square metres.", "What is the perimeter of the rectangle in metres?", "2*(a*b+b)", " m"),
    story("If the side of a square is increased by {a:10-50:10}%, by what percent does its area increase?", "", "2*a+a*a/100", "%"),
    story("<a:20-60:10 b:2-6>{N} covers half of a journey of {=2*a*b} km at {a} km/hr and the other half at {=2*a} km/hr.", "How long does the journey take, in hours?", "b+b/2", " hours"),
    story("<b:3-10>A vessel of {a:20-90:10} litres contains milk and water in the ratio {=b-1}:1, so that one part in {b} is water. {c:2-9} litres of water are added.", "How many litres of water are in the vessel now?", "a/b+c", " litres"),
    story("<b:2-4>{a:3-9} men or {=a*b} boys can [mow a field|build a wall] in {c:4-15} days.", "In how many days can {=a*b*2} boys do it?", "c/2", " days"),
    story("A clock loses {a:2-10} minutes a day. It is set right at noon on Monday.", "How many minutes slow is it at noon {b:5-20} days later?", "a*b", " minutes"),
];
