//! `--label` and `--label-id`: one list, in the order in which they were typed.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use redline_engine::Label;

use crate::value::{self, Ids};

/// The labels, in the order of the columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels(pub(super) Vec<Label>);

impl Args for Labels {
    fn augment_args(command: Command) -> Command {
        let text =
            Arg::new("label").long("label").value_name("TEXT").action(ArgAction::Append).help(
                "A label, one token unless --long-labels takes more (repeatable; mind the leading space)",
            );
        let id = Arg::new("label_id")
            .long("label-id")
            .value_name("ID,..")
            .action(ArgAction::Append)
            .allow_hyphen_values(true)
            .value_parser(value::ids)
            .help("A label as a token id, or several as 3,4 with --long-labels (repeatable)");
        command.arg(text).arg(id)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Labels {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let texts = matches.get_many::<String>("label").into_iter().flatten().cloned().map(Label::Text);
        let ids =
            matches.get_many::<Ids>("label_id").into_iter().flatten().cloned().map(|ids| Label::Ids(ids.0));
        let mut typed: Vec<_> = matches.indices_of("label").into_iter().flatten().zip(texts).collect();
        typed.extend(matches.indices_of("label_id").into_iter().flatten().zip(ids));
        typed.sort_by_key(|(index, _)| *index);
        Ok(Self(typed.into_iter().map(|(_, label)| label).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Vec<Label> {
        let command = Labels::augment_args(Command::new("test").no_binary_name(true));
        Labels::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap().0
    }

    #[test]
    fn the_order_is_the_order_of_typing() {
        let text = |text: &str| Label::Text(text.to_owned());
        assert_eq!(
            parse(&["--label-id", "7", "--label", " yes", "--label-id=-1", "--label", "", "--label-id", "7"]),
            [Label::Ids(vec![7]), text(" yes"), Label::Ids(vec![-1]), text(""), Label::Ids(vec![7])]
        );
        assert_eq!(parse(&[]), []);
    }
}
