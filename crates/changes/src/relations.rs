//! Which relations are made of which: what a change of rows changes besides.
//!
//! Owns the closure over views, parents of partitions and of inheritance, and tables whose policies read others. By name, without schemas: relations of one name are one here.

use std::collections::{BTreeSet, HashMap};

/// From each relation's name to those of relations that read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph(HashMap<Box<str>, Vec<Box<str>>>);

impl Graph {
    /// `reader` is made of `relation`.
    pub(crate) fn add(&mut self, relation: Box<str>, reader: Box<str>) {
        self.0.entry(relation).or_default().push(reader);
    }

    /// These relations and all that are made of them, over any number of steps.
    pub(crate) fn closure(&self, names: BTreeSet<Box<str>>) -> BTreeSet<Box<str>> {
        let mut next: Vec<Box<str>> = names.iter().cloned().collect();
        let mut found = names;
        while let Some(name) = next.pop() {
            for reader in self.0.get(&name).into_iter().flatten() {
                if found.insert(reader.clone()) {
                    next.push(reader.clone());
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closure_follows_any_number_of_steps_and_ends_in_circles() {
        let mut graph = Graph::default();
        for (relation, reader) in
            [("part", "parent"), ("parent", "view"), ("view", "view2"), ("view2", "view"), ("other", "view3")]
        {
            graph.add(relation.into(), reader.into());
        }
        let closure = |name: &str| {
            graph.closure(BTreeSet::from([name.into()])).into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(closure("part"), "parent part view view2");
        assert_eq!(closure("view2"), "view view2");
        assert_eq!((closure("other"), closure("none")), ("other view3".to_owned(), "none".to_owned()));
    }
}
