// Filters of a side-by-side diff, by rule and by state. Without this script all comments are shown.
"use strict";
(() => {
  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function makeChoice(words, all, values) {
    const select = make("select");
    select.append(make("option", { value: "", textContent: all }));
    values.forEach(([value, count]) => select.append(make("option", { value, textContent: `${value} (${count})` })));
    return [make("label", {}, words, select), select];
  }

  function countBy(comments, name) {
    const counts = new Map();
    comments.forEach((comment) => counts.set(comment.dataset[name], (counts.get(comment.dataset[name]) ?? 0) + 1));
    return [...counts].sort((a, b) => a[0].localeCompare(b[0]));
  }

  function offerFilter(view) {
    if (view.dataset.ready) return;
    view.dataset.ready = "yes";
    const files = [...view.querySelectorAll(".diff-file")];
    const comments = [...view.querySelectorAll(".diff-comment")];
    if (!files.length) return;
    const [stateLabel, state] = makeChoice("Show", "every finding", countBy(comments, "state"));
    const [groupLabel, group] = makeChoice("of", "every rule", countBy(comments, "group"));
    const fold = make("button", { type: "button", textContent: "Fold all" });
    const status = make("output");

    function apply() {
      const wanted = (comment) =>
        (!state.value || comment.dataset.state === state.value) && (!group.value || comment.dataset.group === group.value);
      comments.forEach((comment) => (comment.hidden = !wanted(comment)));
      const filtering = state.value || group.value;
      files.forEach((file) => (file.hidden = Boolean(filtering) && !file.querySelector(".diff-comment:not([hidden])")));
      const shown = comments.filter((comment) => !comment.hidden).length;
      const open = files.filter((file) => !file.hidden);
      status.textContent = `${shown} of ${comments.length} findings, ${open.length} of ${files.length} files`;
    }

    fold.addEventListener("click", () => {
      const folding = fold.textContent === "Fold all";
      files.forEach((file) => (file.open = !folding));
      fold.textContent = folding ? "Unfold all" : "Fold all";
    });
    [state, group].forEach((select) => select.addEventListener("change", apply));
    view.prepend(make("div", { className: "diff-bar" }, stateLabel, groupLabel, fold, status));
    apply();
  }

  document.querySelectorAll(".diffs").forEach(offerFilter);
})();
