// SPDX-License-Identifier: MIT
// What the pages can't do by themselves: the diff's two forms, and scrolling by keyboard.
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

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".chapter-diff:has(.diff-toggle)").forEach(setUpDiff);
  nameLandmarks();
  plainSignatures();
  makeScrollersFocusable();
});
window.addEventListener("load", makeScrollersFocusable);
window.addEventListener("resize", makeScrollersFocusable);
