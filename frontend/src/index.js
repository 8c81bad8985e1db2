// What notebooks load: `show` shows a page of the kernel. The document gets the styles once.

import styles from "./styles.css";

const STYLES = "ptynb-styles";
const sheet = document.getElementById(STYLES) ?? document.head.appendChild(document.createElement("style"));
sheet.id = STYLES;
sheet.textContent = styles; // those of the newest version, if a page loads several

export { connect } from "./page/connect.js";
export { pageOf, show } from "./page/show.jsx";
