"use strict";
// Elements, and the words for numbers. Text of a dump only ever becomes text, never markup.

/**
 * @param {string} tag
 * @param {Record<string, any>} attributes  `onclick` and the like are listeners
 * @param {...(Node | string | null | Node[])} children
 * @returns {HTMLElement}
 */
function make(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (fill(document.createElement(tag), attributes, children));
}

/**
 * @param {string} tag
 * @param {Record<string, any>} attributes
 * @param {...(Node | string | null)} children
 * @returns {SVGElement}
 */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return /** @type {SVGElement} */ (fill(element, attributes, children));
}

/**
 * @param {Element} element
 * @param {Record<string, any>} attributes
 * @param {(Node | string | null | Node[])[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

/** @param {number} bytes */
function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 999.5 && unit < units.length - 1) [bytes, unit] = [bytes / 1000, unit + 1];
  return `${unit ? Number(bytes.toPrecision(3)) : bytes} ${units[unit]}`;
}

/** @param {number} us */
function duration(us) {
  if (us >= 999_500) return `${Number((us / 1e6).toPrecision(3))} s`;
  return us >= 999.5 ? `${Number((us / 1e3).toPrecision(3))} ms` : `${Number(us.toPrecision(3))} µs`;
}

/** @param {number} value */
function count(value) {
  return value.toLocaleString("en-US");
}

/** The last part of a place in a program, which tells it from others where there is little room. @param {string | null} place */
function fileAndLine(place) {
  return (place ?? "").split(/[\\/]/).at(-1) ?? "";
}

/** @param {string} text @param {number} most */
function shorten(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
