// What notebooks load: the components of pages, whose styles the document gets once.

import styles from "./styles.css";

const STYLES = "ptynb-styles";
const sheet = document.getElementById(STYLES) ?? document.head.appendChild(document.createElement("style"));
sheet.id = STYLES;
sheet.textContent = styles; // those of the newest version, if a page loads several

export { components } from "./components.js";
