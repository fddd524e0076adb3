"""Settings of augmentation, which tasks that learn from images or sounds have in their sections. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.config.ranges import Range, shares, within


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """Random changes of training images. Each is a pure function of the seed and the sample's number."""

    crop: float = 1.0
    """The smallest share of its area that a random crop keeps of an image, resized to the full size (Szegedy et al.
    2015); 1 does not crop."""
    shift: float = 0.0
    """The largest shift in each direction, as a share of the side; black comes in from outside."""
    flip: bool = False
    """Mirror half of the images: for photos, not for digits and letters."""
    policy: Literal["none", "trivial", "rand"] = "none"
    """Random operations on colours and shape. trivial: one of random strength (Müller & Hutter 2021); rand: two of
    strength `magnitude` (Cubuk et al. 2020)."""
    magnitude: float = 0.3
    """Strength of the operations of policy = "rand", from 0 to 1."""
    jitter: float = 0.0
    """Random brightness, contrast and saturation: the largest change, as a share."""
    erase: float = 0.0
    """Share of images in which a random rectangle is replaced by noise (Zhong et al. 2020)."""
    mixup: float = 0.0
    """Parameter of the beta distribution by which two images and their labels are mixed (Zhang et al. 2018); 0 is
    off."""
    cutmix: float = 0.0
    """The same for a rectangle of one image pasted into another (Yun et al. 2019); with both, each has half of the
    samples."""

    def check_augment(self, section: str) -> None:
        """Refuse values outside their ranges; subclasses call it."""
        within(section, self, Range(0, 1, above=True), "crop")
        shares(section, self, "shift", "jitter")
        within(section, self, Range(0, 1), "magnitude", "erase")
        within(section, self, Range(0, 100), "mixup", "cutmix")

    @property
    def mixes(self) -> bool:
        """Whether a sample takes part of a second image."""
        return self.mixup > 0 or self.cutmix > 0


@dataclass(frozen=True, kw_only=True)
class SoundAugmentConfig:
    """Random changes of training sounds. Each is a pure function of the seed and the sample's number."""

    shift: float = 0.0
    """The largest shift in time in each direction, as a share of the clip; silence comes in from outside."""
    gain: float = 0.0
    """The largest change of loudness, in decibels."""
    noise: float = 0.0
    """Share of sounds to which white noise is added."""
    snr: float = 10.0
    """The strongest noise, as a signal-to-noise ratio in decibels; the weakest one is 30 decibels below it."""
    time_masks: int = 0
    """Stretches of time that are hidden in the spectrogram (SpecAugment, Park et al. 2019)."""
    time_mask: float = 0.2
    """The longest of them, as a share of the clip."""
    mel_masks: int = 0
    """Bands of frequencies that are hidden in the spectrogram."""
    mel_mask: float = 0.2
    """The widest of them, as a share of the bands."""
    mixup: float = 0.0
    """Parameter of the beta distribution by which two sounds and their labels are mixed (Zhang et al. 2018); 0 is
    off."""

    def check_augment(self, section: str) -> None:
        """Refuse values outside their ranges; subclasses call it."""
        shares(section, self, "shift", "time_mask", "mel_mask")
        within(section, self, Range(0, 1), "noise")
        within(section, self, Range(0, 60), "gain")
        within(section, self, Range(-20, 60), "snr")
        within(section, self, Range(0, 20), "time_masks", "mel_masks")
        within(section, self, Range(0, 100), "mixup")
