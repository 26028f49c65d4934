//! Inclusive costs: top-down and bottom-up trees, and the callers and callees of functions.
//!
//! A place in a tree is a function (inlined ones too); code without a name is its module. Each
//! node's inclusive cost is that of all backtraces through it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use htrace_trace_format::{StringIndex, TraceIndex};

use crate::cost::CostKind;
use crate::filter::stops_anywhere;
use crate::number_format::{Unit, size};
use crate::profile::Profile;
use crate::tables::Tables;
use crate::template;

/// Which way a tree grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the outermost function to those that allocate.
    TopDown,
    /// From the allocating functions to their callers.
    BottomUp,
}

/// How a tree is written.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// The cost.
    pub kind: CostKind,
    /// Leave out template arguments.
    pub shorten_templates: bool,
    /// Leave out nodes below this percentage of the whole.
    pub min_percent: f64,
    /// Functions of the table of callers and callees.
    pub limit: usize,
}

/// A function, or the module of code without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Function(StringIndex),
    Module(StringIndex),
}

/// Levels that are written; deeper ones are left out.
const DEEPEST: usize = 512;

/// A node by position of its parent and its place; positions point into `nodes`.
#[derive(Default)]
struct Tree {
    nodes: Vec<TreeNode>,
    positions: HashMap<(usize, Place), usize>,
}

struct TreeNode {
    place: Place,
    inclusive: i64,
    own: i64,
    children: Vec<usize>,
}

impl Tree {
    fn build(profile: &Profile, kind: CostKind, direction: Direction) -> Self {
        let mut tree = Self::default();
        let root = TreeNode {
            place: Place::Module(StringIndex::NONE),
            inclusive: 0,
            own: 0,
            children: Vec::new(),
        };
        tree.nodes.push(root);
        for entry in &profile.entries {
            let cost = entry.costs.get(kind);
            if cost == 0 {
                continue;
            }
            let mut places = places(&profile.tables, entry.trace);
            if direction == Direction::TopDown {
                places.reverse();
            }
            let leaf = match direction {
                Direction::TopDown => places.len().saturating_sub(1),
                Direction::BottomUp => 0,
            };
            tree.add(&places, leaf, cost);
        }
        tree
    }

    /// Adds a backtrace; `leaf` is the level of the function that allocates.
    fn add(&mut self, places: &[Place], leaf: usize, cost: i64) {
        let mut at = 0;
        let places = places.iter().take(DEEPEST);
        let leaf = leaf.min(places.len().saturating_sub(1));
        self.nodes[0].inclusive = self.nodes[0].inclusive.wrapping_add(cost);
        for (level, &place) in places.enumerate() {
            at = self.child(at, place);
            let node = &mut self.nodes[at];
            node.inclusive = node.inclusive.wrapping_add(cost);
            if level == leaf {
                node.own = node.own.wrapping_add(cost);
            }
        }
    }

    fn child(&mut self, parent: usize, place: Place) -> usize {
        if let Some(&known) = self.positions.get(&(parent, place)) {
            return known;
        }
        let position = self.nodes.len();
        self.nodes.push(TreeNode {
            place,
            inclusive: 0,
            own: 0,
            children: Vec::new(),
        });
        self.nodes[parent].children.push(position);
        self.positions.insert((parent, place), position);
        position
    }
}

/// The functions of a backtrace, leaf first.
fn places(tables: &Tables, trace: TraceIndex) -> Vec<Place> {
    let mut places = Vec::new();
    for (_, ip) in tables.walk(trace) {
        for frame in [&ip.frame].into_iter().chain(tables.inlined(&ip)) {
            places.push(if frame.function.is_none() {
                Place::Module(ip.module)
            } else {
                Place::Function(frame.function)
            });
        }
        if stops_anywhere(tables, &ip) {
            break;
        }
    }
    places
}

/// Writes the tree, largest children first.
///
/// # Errors
/// Those of `out`.
pub fn write_tree(
    profile: &Profile,
    direction: Direction,
    options: &TreeOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let tree = Tree::build(profile, options.kind, direction);
    let whole = tree.nodes[0].inclusive;
    writeln!(
        out,
        "{:>12} {:>12} {:>7}  FUNCTION",
        "INCLUSIVE", "SELF", "SHARE"
    )?;
    let mut pending: Vec<(usize, usize)> = sorted_children(&tree, 0, 0);
    while let Some((position, depth)) = pending.pop() {
        let node = &tree.nodes[position];
        let share = share(node.inclusive, whole);
        if share < options.min_percent {
            continue;
        }
        let (inclusive, own) = (cost(options, node.inclusive), cost(options, node.own));
        write!(
            out,
            "{inclusive:>12} {own:>12} {share:>6.2}%  {:width$}",
            "",
            width = depth * 2
        )?;
        write_place(&profile.tables, node.place, options, out)?;
        writeln!(out)?;
        pending.extend(sorted_children(&tree, position, depth + 1));
    }
    writeln!(out)
}

/// Children with their depth, smallest first, so that the largest is taken first off the end.
fn sorted_children(tree: &Tree, position: usize, depth: usize) -> Vec<(usize, usize)> {
    let mut children: Vec<(usize, usize)> = tree.nodes[position]
        .children
        .iter()
        .map(|&child| (child, depth))
        .collect();
    children.sort_by_key(|&(child, _)| {
        (
            tree.nodes[child].inclusive.unsigned_abs(),
            std::cmp::Reverse(child),
        )
    });
    children
}

fn share(part: i64, whole: i64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        (part as f64 / whole as f64 * 100.0).abs()
    }
}

fn cost(options: &TreeOptions, cost: i64) -> String {
    if options.kind.is_bytes() {
        size(cost, Unit::Short)
    } else {
        cost.to_string()
    }
}

fn write_place(
    tables: &Tables,
    place: Place,
    options: &TreeOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    match place {
        Place::Function(name) if options.shorten_templates => {
            out.write_all(&template::shorten(tables.strings.get(name)))
        }
        Place::Function(name) => out.write_all(tables.strings.get(name)),
        Place::Module(path) if path.is_none() => out.write_all(b"??"),
        Place::Module(path) => {
            out.write_all(b"?? in ")?;
            out.write_all(tables.strings.get(path))
        }
    }
}

/// What is known of one function.
#[derive(Default)]
struct Function {
    inclusive: i64,
    own: i64,
    callers: BTreeMap<Place, i64>,
    callees: BTreeMap<Place, i64>,
}

/// Writes the functions with the largest inclusive costs, each with its callers above and its
/// callees below it. A function that occurs more than once in a backtrace counts once.
///
/// # Errors
/// Those of `out`.
pub fn write_callers_and_callees(
    profile: &Profile,
    options: &TreeOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let functions = functions(profile, options.kind);
    let mut order: Vec<(&Place, &Function)> = functions.iter().collect();
    order.sort_by_key(|(_, function)| std::cmp::Reverse(function.inclusive.unsigned_abs()));
    writeln!(out, "{:>12} {:>12}  FUNCTION", "INCLUSIVE", "SELF")?;
    for (&place, function) in order.into_iter().take(options.limit) {
        write_neighbours(
            &profile.tables,
            &function.callers,
            ("called by", options),
            out,
        )?;
        let (inclusive, own) = (
            cost(options, function.inclusive),
            cost(options, function.own),
        );
        write!(out, "{inclusive:>12} {own:>12}  ")?;
        write_place(&profile.tables, place, options, out)?;
        writeln!(out)?;
        write_neighbours(&profile.tables, &function.callees, ("calls", options), out)?;
        writeln!(out)?;
    }
    Ok(())
}

fn functions(profile: &Profile, kind: CostKind) -> BTreeMap<Place, Function> {
    let mut functions: BTreeMap<Place, Function> = BTreeMap::new();
    for entry in &profile.entries {
        let cost = entry.costs.get(kind);
        if cost == 0 {
            continue;
        }
        let places = places(&profile.tables, entry.trace);
        if let Some(leaf) = places.first() {
            let own = &mut functions.entry(*leaf).or_default().own;
            *own = own.wrapping_add(cost);
        }
        let seen: HashSet<Place> = places.iter().copied().collect();
        for place in seen {
            let inclusive = &mut functions.entry(place).or_default().inclusive;
            *inclusive = inclusive.wrapping_add(cost);
        }
        let calls: HashSet<(Place, Place)> = places
            .windows(2)
            .filter_map(|pair| Some((*pair.first()?, *pair.last()?)))
            .collect();
        for (callee, caller) in calls {
            let callers = &mut functions.entry(callee).or_default().callers;
            *callers.entry(caller).or_default() += cost;
            let callees = &mut functions.entry(caller).or_default().callees;
            *callees.entry(callee).or_default() += cost;
        }
    }
    functions
}

/// Neighbours of a function that are written.
const SHOWN_NEIGHBOURS: usize = 5;

fn write_neighbours(
    tables: &Tables,
    neighbours: &BTreeMap<Place, i64>,
    (word, options): (&str, &TreeOptions),
    out: &mut impl Write,
) -> io::Result<()> {
    let mut order: Vec<(&Place, &i64)> = neighbours.iter().collect();
    order.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.unsigned_abs()));
    for (&place, &part) in order.into_iter().take(SHOWN_NEIGHBOURS) {
        write!(out, "{:>12} {:>12}    {word} ", cost(options, part), "")?;
        write_place(tables, place, options, out)?;
        writeln!(out)?;
    }
    Ok(())
}
