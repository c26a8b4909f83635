// SPDX-License-Identifier: MIT
// What the pages can't do by themselves: the diff's two forms, terms that explain themselves, and scrolling by keyboard.
"use strict";

/** What scrolls sideways can be reached and scrolled with the keyboard; what does not is no stop on the way. */
function makeScrollersFocusable() {
  const scrollers = document.querySelectorAll(
    ".highlight pre, .table-wrapper, dt.sig-object, .sidebar-scroll, .toc-scroll, .diff-view, figure.drawing");
  for (const element of scrollers) {
    const scrolls = element.scrollWidth > element.clientWidth || element.scrollHeight > element.clientHeight;
    if (scrolls) {
      element.setAttribute("tabindex", "0");
    } else {
      element.removeAttribute("tabindex");
    }
  }
}

/** A button that shows a diff unified or side by side; without it the page's width decides. */
function setUpDiff(diff) {
  const button = diff.querySelector(".diff-toggle");
  const isSplit = () => getComputedStyle(diff.querySelector(".diff-view.split")).display !== "none" ||
    diff.classList.contains("is-split");
  const label = () => { button.textContent = isSplit() ? "Unified" : "Side by side"; };
  button.addEventListener("click", () => {
    const split = !isSplit();
    diff.classList.toggle("is-split", split);
    diff.classList.toggle("is-unified", !split);
    label();
    makeScrollersFocusable();
  });
  diff.addEventListener("toggle", makeScrollersFocusable, true);
  button.hidden = false;
  label();
}

/** Two navigations on a page are told apart by their names. */
function nameLandmarks() {
  const names = { ".sidebar-tree": "Chapters and pages", ".related-pages": "Previous and next page" };
  for (const [selector, name] of Object.entries(names)) {
    for (const element of document.querySelectorAll(selector)) {
      element.setAttribute("role", "navigation");
      element.setAttribute("aria-label", name);
    }
  }
  for (const heading of document.querySelectorAll("[role=heading]:not([aria-level])")) heading.setAttribute("aria-level", "2");
}

/** Sphinx writes a long signature's parameters as a list of definitions without terms; to a reader it is a line. */
function plainSignatures() {
  for (const part of document.querySelectorAll("dt.sig-object dl, dt.sig-object dd")) part.setAttribute("role", "none");
}

/** A term's meaning, which is its link's title, beside the term while the pointer or the keyboard is on it; Escape ends that. */
function explainTerms() {
  const tip = Object.assign(document.createElement("div"), { id: "meaning", hidden: true });
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  let leaving = 0;
  const hide = () => { tip.hidden = true; };
  const hideSoon = () => { leaving = setTimeout(hide, 200); };
  const stay = () => clearTimeout(leaving);
  const show = (link, meaning) => {
    stay();
    tip.textContent = meaning;
    tip.hidden = false;
    const at = link.getClientRects()[0];
    const fitsBelow = at.bottom + tip.offsetHeight + 8 < innerHeight;
    tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${scrollY + (fitsBelow ? at.bottom + 4 : at.top - tip.offsetHeight - 4)}px`;
  };
  for (const link of document.querySelectorAll("a[title]:has(.term)")) {
    const meaning = link.title;
    link.removeAttribute("title");
    link.setAttribute("aria-describedby", tip.id);
    for (const event of ["mouseenter", "focus"]) link.addEventListener(event, () => show(link, meaning));
    for (const event of ["mouseleave", "blur"]) link.addEventListener(event, hideSoon);
  }
  tip.addEventListener("mouseenter", stay);
  tip.addEventListener("mouseleave", hide);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
}

document.addEventListener("DOMContentLoaded", () => {
  explainTerms();
  document.querySelectorAll(".chapter-diff:has(.diff-toggle)").forEach(setUpDiff);
  nameLandmarks();
  plainSignatures();
  makeScrollersFocusable();
});
window.addEventListener("load", makeScrollersFocusable);
window.addEventListener("resize", makeScrollersFocusable);
