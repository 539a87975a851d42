//! Student's t distribution.

use std::f64::consts::PI;

/// Degrees of freedom above which the distribution equals the normal one to seven digits.
const MANY: f64 = 1e6;
/// Panels of Simpson's rule.
const PANELS: usize = 512;
/// Maximum number of Newton steps; a dozen suffice for a long tail.
const STEPS: usize = 64;

/// The quantile `p`, from 0.5 up to below 1, of Student's t with `freedom` >= 1 degrees of freedom.
///
/// With t = sinh(s) sqrt(freedom), the probability of (-t, t) is C times the integral of cosh^-freedom from 0 to s. It
/// is concave in s, so Newton's steps from 0 approach the quantile from below.
pub fn quantile(p: f64, freedom: f64) -> f64 {
    let freedom = freedom.clamp(1.0, MANY);
    let log_c =
        libm::lgamma(f64::midpoint(freedom, 1.0)) - libm::lgamma(freedom / 2.0) - 0.5 * PI.ln() + 2_f64.ln();
    let wanted = (2.0 * p - 1.0).clamp(0.0, 1.0 - f64::EPSILON) / log_c.exp();
    let density = |s: f64| s.cosh().powf(-freedom);
    let mut point: f64 = 0.0;
    for _ in 0..STEPS {
        let step = (wanted - integral(&density, point)) / density(point);
        if step.is_nan() || step.abs() <= 1e-12 * point {
            break;
        }
        point += step;
    }
    point.sinh() * freedom.sqrt()
}

/// The integral of `f` from 0 to `end` by Simpson's rule.
fn integral(f: &impl Fn(f64) -> f64, end: f64) -> f64 {
    let step = end / PANELS as f64;
    let weight = |i: usize| if i == 0 || i == PANELS { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 };
    (0..=PANELS).map(|i| weight(i) * f(i as f64 * step)).sum::<f64>() * step / 3.0
}
