//! Mixture of experts: which experts a row goes to, with which weights, and the sum of what they return.

use redline_kernels::op::experts::{Choice, Weighting, add_weighted, choose, gate, gather};
use redline_kernels::{Rows, RowsMut};
use redline_reference::elementwise::sigmoid;
use redline_reference::experts as reference;

use crate::values::{Random, everywhere, same};

const WHOLE: Weighting<&[f32]> = Weighting::Softmax { normalise: true, factors: None };

/// The choices of each row of `logits`.
fn chosen(logits: &[f32], experts: usize, top: usize, weighting: Weighting<&[f32]>) -> Vec<Choice> {
    let rows = logits.len() / experts;
    let mut first: Option<Vec<Choice>> = None;
    everywhere(|exec, name| {
        let mut logits = logits.to_vec();
        let mut choices = vec![Choice::default(); rows * top];
        choose(exec, &mut RowsMut::new(&mut logits, rows, experts, experts), top, weighting, &mut choices);
        let same = first
            .get_or_insert_with(|| choices.clone())
            .iter()
            .zip(&choices)
            .all(|(a, b)| (a.expert, a.row) == (b.expert, b.row) && same(&[a.weight], &[b.weight]));
        assert!(same, "{name}");
    });
    first.unwrap()
}

fn ids(logits: &[f32], top: usize) -> Vec<u32> {
    chosen(logits, logits.len(), top, WHOLE).iter().map(|choice| choice.expert).collect()
}

#[test]
fn equal_logits_go_to_the_smaller_id() {
    assert_eq!(ids(&[1.0, 3.0, 2.0, 3.0, 2.0], 3), [1, 2, 3]);
    assert_eq!(ids(&[2.0; 6], 4), [0, 1, 2, 3]);
    assert_eq!(ids(&[0.0, -0.0, -1.0, 0.0], 2), [0, 1]);
    assert_eq!(ids(&[-0.0, 0.0, 1.0], 2), [0, 2]);
    assert_eq!(ids(&[1.0, 2.0, 3.0], 3), [0, 1, 2]);
    assert_eq!(ids(&[f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0], 2), [0, 2]);
}

#[test]
fn a_nan_is_chosen_whatever_its_sign_and_shows_in_every_weight() {
    for nan in [f32::NAN, -f32::NAN] {
        let choices = chosen(&[4.0, 1.0, nan, 3.0, nan, f32::INFINITY], 6, 3, WHOLE);
        assert_eq!(choices.iter().map(|choice| choice.expert).collect::<Vec<_>>(), [2, 4, 5]);
        assert!(choices.iter().all(|choice| choice.weight.is_nan()), "{choices:?}");
    }
}

fn of_row(logits: &[f32], row: u32, top: usize, normalise: bool, factors: Option<&[f32]>) -> Vec<Choice> {
    let of = |(expert, weight)| Choice { expert: expert as u32, row, weight };
    reference::chosen(logits, top, normalise, factors).into_iter().map(of).collect()
}

#[test]
fn weights_follow_their_order_everywhere() {
    for (experts, top) in [(1, 1), (4, 2), (8, 3), (17, 4), (60, 4), (128, 8)] {
        let logits: Vec<f32> = Random(experts as u64).values(40 * experts).iter().map(|x| x * 5.0).collect();
        let factors: Vec<f32> = Random(5).values(experts).iter().map(|x| 1.0 + x * 0.5).collect();
        for normalise in [false, true] {
            let of = |factors| -> Vec<Choice> {
                (0u32..)
                    .zip(logits.chunks(experts))
                    .flat_map(|(row, logits)| of_row(logits, row, top, normalise, factors))
                    .collect()
            };
            for factors in [None, Some(&factors[..])] {
                let weighting = Weighting::Softmax { normalise, factors };
                assert_eq!(chosen(&logits, experts, top, weighting), of(factors), "{top} of {experts}");
            }
            let want = of(None);
            let sums = want.chunks(top).map(|row| row.iter().map(|choice| choice.weight).sum::<f32>());
            let whole = sums.filter(|sum| (sum - 1.0).abs() < 1e-6).count();
            assert_eq!(whole == 40, normalise || top == experts, "{top} of {experts}");
        }
    }
}

#[test]
fn sigmoids_are_corrected_where_experts_are_chosen_and_divided_where_they_are_weighed() {
    for (experts, top) in [(1, 1), (5, 2), (17, 4), (60, 4)] {
        let logits: Vec<f32> = Random(experts as u64).values(40 * experts).iter().map(|x| x * 3.0).collect();
        let bias: Vec<f32> = Random(7).values(experts).iter().map(|x| x * 0.5).collect();
        let mut differ = false;
        for correction in [None, Some(&bias[..])] {
            for (epsilon, scale) in [(None, 1.0), (Some(1e-6), 1.0), (Some(0.25), 2.5), (None, 0.5)] {
                let want: Vec<Choice> = (0u32..)
                    .zip(logits.chunks(experts))
                    .flat_map(|(row, logits)| {
                        let of = reference::chosen_by_sigmoid(logits, top, correction, epsilon, scale);
                        of.into_iter().map(move |(expert, weight)| Choice {
                            expert: expert as u32,
                            row,
                            weight,
                        })
                    })
                    .collect();
                let weighting = Weighting::Sigmoid { correction, epsilon, scale };
                let found = chosen(&logits, experts, top, weighting);
                assert_eq!(found, want, "{top} of {experts}");
                let plain = Weighting::Sigmoid { correction: None, epsilon, scale };
                differ |= found != chosen(&logits, experts, top, plain);
            }
        }
        assert_eq!(differ, top < experts, "the correction changes the choice of {top} of {experts}");
    }
    let ids = |logits: &[f32], correction: &[f32]| -> Vec<u32> {
        let weighting = Weighting::Sigmoid { correction: Some(correction), epsilon: Some(1e-6), scale: 1.0 };
        chosen(logits, logits.len(), 2, weighting).iter().map(|choice| choice.expert).collect()
    };
    // Equal scores go to the smaller id, and a NaN is above every number.
    assert_eq!(ids(&[0.0; 4], &[-0.25, 0.0, 0.0, 0.0]), [1, 2]);
    assert_eq!(ids(&[9.0, 1.0, f32::NAN, 9.0], &[0.0, 5.0, -9.0, 0.0]), [1, 2]);
    let weights = |epsilon, scale| {
        let weighting = Weighting::Sigmoid { correction: Some(&[0.0, 0.0, 9.0][..]), epsilon, scale };
        chosen(&[0.0, -1.0, -2.0], 3, 2, weighting).iter().map(|choice| choice.weight).collect::<Vec<_>>()
    };
    let [first, last] = [0.5, sigmoid(-2.0)];
    assert_eq!(weights(None, 2.0), [2.0 * first, 2.0 * last]);
    assert_eq!(weights(Some(0.125), 2.0), [first, last].map(|s| 2.0 * (s / (first + last + 0.125))));
}

#[test]
fn gates_are_sigmoids() {
    let values = [0.0, 1.0, -1.0, 20.0, -20.0, 100.0, -100.0, f32::NAN];
    everywhere(|exec, name| {
        let mut choices = [Choice::default(); 8];
        gate(exec, Rows::new(&values, 8, 1, 1), &mut choices);
        for (row, (choice, x)) in choices.iter().zip(values).enumerate() {
            assert_eq!((choice.expert, choice.row), (0, row as u32));
            assert!(same(&[choice.weight], &[sigmoid(x)]), "{x} on {name}");
        }
        assert_eq!(choices[0].weight, 0.5);
    });
}

/// Wide enough that threads share the columns. Every row has several choices.
#[test]
fn choices_of_one_row_are_added_in_their_order() {
    const WIDTH: usize = 1033;
    let mut random = Random(11);
    let (out, y) = (random.awkward(8 * WIDTH), random.awkward(64 * WIDTH));
    let choices: Vec<Choice> =
        (0..64).map(|i| Choice { expert: i / 8, row: i * 5 % 8, weight: random.value() }).collect();
    let mut want = out.clone();
    for (choice, y) in choices.iter().zip(y.chunks(WIDTH)) {
        let out = &mut want[choice.row as usize * WIDTH..][..WIDTH];
        reference::add_weighted(out, y, choice.weight);
    }
    everywhere(|exec, name| {
        let mut sum = out.clone();
        let y = Rows::new(&y, 64, WIDTH, WIDTH);
        add_weighted(exec, &choices, y, &mut RowsMut::new(&mut sum, 8, WIDTH, WIDTH));
        assert!(same(&sum, &want), "{name}");
    });
}

#[test]
fn rows_are_gathered_and_their_results_added_with_one_rounding() {
    let mut random = Random(3);
    for width in [1, 15, 16, 33] {
        let (x, out, y) = (random.values(40 * width), random.awkward(40 * width), random.awkward(20 * width));
        let choices: Vec<Choice> =
            (0..20).map(|i| Choice { expert: 5, row: 2 * i + i % 2, weight: random.value() }).collect();
        let mut want = out.clone();
        for (choice, y) in choices.iter().zip(y.chunks(width)) {
            let out = &mut want[choice.row as usize * width..][..width];
            reference::add_weighted(out, y, choice.weight);
        }
        everywhere(|exec, name| {
            let mut gathered = vec![0.0; 20 * width];
            let from = Rows::new(&x, 40, width, width);
            gather(exec, &choices, from, &mut RowsMut::new(&mut gathered, 20, width, width));
            for (choice, row) in choices.iter().zip(gathered.chunks(width)) {
                assert_eq!(row, from.row(choice.row as usize), "{name}");
            }
            let mut sum = out.clone();
            let y = Rows::new(&y, 20, width, width);
            add_weighted(exec, &choices, y, &mut RowsMut::new(&mut sum, 40, width, width));
            assert!(same(&sum, &want), "width {width} on {name}");
        });
    }
}
