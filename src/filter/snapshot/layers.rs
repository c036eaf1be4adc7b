//! Converts a filter into the layers of a snapshot, and back.

use super::super::{Filter, FilterKind, FilterSpec, GrowthBudget, LayerHeader, LayerKind, LayersError};
use super::{Header, Hex, LayerEntry, LayerView, Snapshot};

/// A readable snapshot that does not make a filter.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RestoreError {
    /// A kind that this version does not know.
    #[error("its filter has the unknown kind {0:?}")]
    Kind(String),
    /// Not the layers of such a filter.
    #[error(transparent)]
    Layers(#[from] LayersError),
}

/// The layers of a filter, for writing.
#[must_use]
pub fn views(filter: &Filter) -> Vec<LayerView<'_>> {
    let view = |(header, words)| LayerView { header: entry(&header), words };
    filter.layers().into_iter().map(view).collect()
}

fn entry(header: &LayerHeader) -> LayerEntry {
    LayerEntry {
        kind: kind_name(header.kind).into(),
        capacity: header.capacity,
        rate: header.rate,
        salt: header.salt.map(|word| Hex(word.to_be_bytes())),
        hashes: header.hashes,
        bits: header.bits,
        // The writer fills in both.
        words: 0,
        checksum: Hex([0; 16]),
    }
}

impl Header {
    /// The specification of the filter.
    ///
    /// # Errors
    /// [`RestoreError::Kind`].
    pub fn spec(&self) -> Result<FilterSpec, RestoreError> {
        let kind = FilterKind::ALL.into_iter().find(|kind| kind.as_str() == self.kind);
        let kind = kind.ok_or_else(|| RestoreError::Kind(self.kind.clone()))?;
        Ok(FilterSpec { kind, capacity: self.capacity, rate: self.rate })
    }
}

impl Snapshot {
    /// Restores the filter. It grows if `growth` allows it.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn into_filter(self, growth: GrowthBudget) -> Result<Filter, RestoreError> {
        let spec = self.header.spec()?;
        let layers = self.layers.into_iter().map(|layer| {
            let LayerEntry { kind, capacity, rate, salt, hashes, bits, .. } = layer.header;
            let kind =
                LAYER_KINDS.into_iter().find(|known| kind_name(*known) == kind).ok_or(RestoreError::Kind(kind))?;
            let header =
                LayerHeader { kind, capacity, rate, salt: salt.map(|word| u64::from_be_bytes(word.0)), hashes, bits };
            Ok((header, layer.memory))
        });
        let layers = layers.collect::<Result<Vec<_>, RestoreError>>()?;
        Ok(Filter::from_layers(spec, layers, growth)?)
    }
}

const LAYER_KINDS: [LayerKind; 3] = [LayerKind::SplitBlock, LayerKind::Classic, LayerKind::Counting];

const fn kind_name(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::SplitBlock => "split_block",
        LayerKind::Classic => "classic",
        LayerKind::Counting => "counting",
    }
}
