//! Colours of the page: one per cause, the same as on a device's live page, those of the curves,
//! and the scale of the heat maps. A curve has its name at its end, so no colour has to tell it
//! apart.

use ftld_kit::convert::{to_f64, to_u64};
use nand_model::Cause;

/// An sRGB colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(u8, u8, u8);

/// Colours by cause, of Okabe and Ito's palette and greys: distinguishable for all readers.
const fn of_cause(cause: Cause) -> Colour {
    match cause {
        Cause::Host => Colour(0x00, 0x72, 0xb2),
        Cause::Gc => Colour(0xd5, 0x5e, 0x00),
        Cause::GcTranslation => Colour(0xf0, 0xa5, 0x8f),
        Cause::Merge => Colour(0xe6, 0x9f, 0x00),
        Cause::Convert => Colour(0xcc, 0x79, 0xa7),
        Cause::Translation => Colour(0x00, 0x9e, 0x73),
        Cause::Trim => Colour(0xb4, 0xba, 0xc1),
        Cause::Wear => Colour(0xe5, 0xd5, 0x3a),
        Cause::Refresh => Colour(0x56, 0xb4, 0xe9),
        Cause::Checkpoint => Colour(0x7d, 0x5a, 0x3c),
        Cause::Pad => Colour(0x8b, 0x92, 0x9b),
        Cause::Journal => Colour(0x7a, 0x5c, 0xc0),
        Cause::Recovery => Colour(0xc2, 0x1e, 0x56),
        Cause::Fold => Colour(0x4d, 0x91, 0x93),
    }
}

/// Scale of the heat maps, low to high: ColorBrewer's YlOrBr, safe for colour-blind readers.
const SCALE: [Colour; 9] = [
    Colour(0xff, 0xff, 0xe5),
    Colour(0xff, 0xf7, 0xbc),
    Colour(0xfe, 0xe3, 0x91),
    Colour(0xfe, 0xc4, 0x4f),
    Colour(0xfe, 0x99, 0x29),
    Colour(0xec, 0x70, 0x14),
    Colour(0xcc, 0x4c, 0x02),
    Colour(0x99, 0x34, 0x04),
    Colour(0x66, 0x25, 0x06),
];

/// Colours of the curves, and of their names, on a light and on a dark ground.
const SERIES: [[Colour; 2]; 8] = [
    [Colour(0x00, 0x5f, 0x9e), Colour(0x6c, 0xb8, 0xf0)],
    [Colour(0xa8, 0x42, 0x00), Colour(0xff, 0x9d, 0x5c)],
    [Colour(0x00, 0x6e, 0x50), Colour(0x48, 0xd0, 0xa5)],
    [Colour(0x9c, 0x2d, 0x75), Colour(0xf0, 0x8f, 0xc8)],
    [Colour(0x74, 0x58, 0x00), Colour(0xe2, 0xc5, 0x4e)],
    [Colour(0x5b, 0x3f, 0xc4), Colour(0xb3, 0x9d, 0xff)],
    [Colour(0xb5, 0x1b, 0x4e), Colour(0xff, 0x8f, 0xa8)],
    [Colour(0x48, 0x52, 0x5c), Colour(0xb4, 0xc3, 0xcc)],
];
/// Dashes of the curves beyond the colours.
const DASHES: [&str; 3] = ["none", "6 3", "2 2.5"];
/// Grounds of the page, light and dark.
const GROUNDS: [Colour; 2] = [Colour(0xff, 0xff, 0xff), Colour(0x15, 0x18, 0x1c)];

/// Steps of the scale, each a class of the style.
pub(super) const STEPS: usize = 17;

const BLACK: Colour = Colour(0, 0, 0);
const WHITE: Colour = Colour(0xff, 0xff, 0xff);

impl Colour {
    fn css(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }

    /// Returns the relative luminance of WCAG 2.
    fn luminance(self) -> f64 {
        let linear = |channel: u8| {
            let share = f64::from(channel) / 255.0;
            if share <= 0.04045 {
                share / 12.92
            } else {
                ((share + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * linear(self.0) + 0.7152 * linear(self.1) + 0.0722 * linear(self.2)
    }

    /// Returns the contrast ratio of WCAG 2, from 1 to 21.
    fn contrast(self, other: Colour) -> f64 {
        let (one, two) = (self.luminance() + 0.05, other.luminance() + 0.05);
        one.max(two) / one.min(two)
    }

    /// Returns black or white, whichever is easier to read on this ground.
    fn text(self) -> Colour {
        if self.contrast(BLACK) >= self.contrast(WHITE) {
            BLACK
        } else {
            WHITE
        }
    }
}

/// Returns the colour of a step of the scale.
fn step(number: usize) -> Colour {
    let last = to_f64(to_u64(SCALE.len() - 1));
    let position = to_f64(to_u64(number)) / to_f64(to_u64(STEPS - 1)) * last;
    let below = (position as usize).min(SCALE.len() - 2);
    let share = position - to_f64(to_u64(below));
    let (from, to) = (SCALE[below], SCALE[below + 1]);
    let mix = |from: u8, to: u8| {
        (f64::from(from) + share * (f64::from(to) - f64::from(from))).round() as u8
    };
    Colour(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

/// Returns the class of a cause.
pub(super) fn class_of(cause: Cause) -> String {
    format!("c-{}", cause.name())
}

/// Returns the classes of a curve.
pub(super) fn series(number: usize) -> String {
    let dash = number / SERIES.len() % DASHES.len();
    format!("s{} d{dash}", number % SERIES.len())
}

/// Returns the rules of the classes of causes, curves and steps.
pub(super) fn rules() -> String {
    let of_ground = |ground: usize| -> String {
        let colours = SERIES.iter().enumerate();
        colours
            .map(|(number, colours)| format!(".s{number}{{--of:{}}}", colours[ground].css()))
            .collect()
    };
    let dashes = DASHES.iter().enumerate();
    let dashes: String = dashes
        .map(|(number, dash)| format!("path.d{number}{{stroke-dasharray:{dash}}}"))
        .collect();
    let curves = format!(
        ":root{{--ground:{}}}{}{dashes}\n@media screen and (prefers-color-scheme:dark){{:root{{--ground:{}}}{}}}\n",
        GROUNDS[0].css(),
        of_ground(0),
        GROUNDS[1].css(),
        of_ground(1)
    );
    let causes = Cause::ALL.into_iter().map(|cause| {
        let (class, colour) = (class_of(cause), of_cause(cause).css());
        format!(".{class}{{fill:{colour};background:{colour}}}\n")
    });
    let steps = (0..STEPS).map(|number| {
        let (ground, text) = (step(number), step(number).text());
        format!(
            ".h{number}{{background:{};color:{}}}\n",
            ground.css(),
            text.css()
        )
    });
    curves + &causes.chain(steps).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_colour_of_its_own_that_the_live_page_has_too() {
        let page = include_str!("../../../src/live_page/base.js");
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            let colour = of_cause(cause);
            for other in &Cause::ALL[..number] {
                assert_ne!(colour, of_cause(*other), "{cause:?} and {other:?}");
            }
            // The live page draws work of a mount in the colour of its text.
            assert!(
                page.contains(&format!("'{}'", colour.css())) || cause == Cause::Recovery,
                "{cause:?}"
            );
            assert!(
                !(0..STEPS).any(|number| step(number) == colour),
                "{cause:?}"
            );
        }
    }

    #[test]
    fn names_of_curves_are_readable_on_both_grounds() {
        for colours in SERIES {
            for (colour, ground) in colours.into_iter().zip(GROUNDS) {
                assert!(colour.contrast(ground) >= 4.5, "{colour:?} on {ground:?}");
            }
        }
        let classes: Vec<String> = (0..24).map(series).collect();
        assert!((0..24).all(|one| !classes[..one].contains(&classes[one])));
        assert_eq!((&classes[0][..], &classes[23][..]), ("s0 d0", "s7 d2"));
    }

    #[test]
    fn text_is_readable_on_every_step_and_steps_darken() {
        for number in 0..STEPS {
            let ground = step(number);
            assert!(ground.contrast(ground.text()) >= 4.5, "{ground:?}");
            assert!(
                number == 0 || ground.luminance() < step(number - 1).luminance(),
                "step {number}"
            );
        }
        assert_eq!((step(0), step(STEPS - 1)), (SCALE[0], SCALE[8]));
        assert!((BLACK.contrast(WHITE) - 21.0).abs() < 1e-9);
    }
}
