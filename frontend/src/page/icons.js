// The icons of buttons, by the names of Lucide.

import archive from "lucide-static/icons/archive.svg";
import arrowDown from "lucide-static/icons/arrow-down.svg";
import arrowLeft from "lucide-static/icons/arrow-left.svg";
import arrowRight from "lucide-static/icons/arrow-right.svg";
import arrowUp from "lucide-static/icons/arrow-up.svg";
import briefcaseMedical from "lucide-static/icons/briefcase-medical.svg";
import chartLine from "lucide-static/icons/chart-line.svg";
import check from "lucide-static/icons/check.svg";
import chevronDown from "lucide-static/icons/chevron-down.svg";
import chevronRight from "lucide-static/icons/chevron-right.svg";
import clock from "lucide-static/icons/clock.svg";
import columns from "lucide-static/icons/columns-2.svg";
import compass from "lucide-static/icons/compass.svg";
import contrast from "lucide-static/icons/contrast.svg";
import copy from "lucide-static/icons/copy.svg";
import crosshair from "lucide-static/icons/crosshair.svg";
import ellipsis from "lucide-static/icons/ellipsis.svg";
import eye from "lucide-static/icons/eye.svg";
import fastForward from "lucide-static/icons/fast-forward.svg";
import file from "lucide-static/icons/file.svg";
import fileText from "lucide-static/icons/file-text.svg";
import film from "lucide-static/icons/film.svg";
import flaskConical from "lucide-static/icons/flask-conical.svg";
import folderOpen from "lucide-static/icons/folder-open.svg";
import gitBranch from "lucide-static/icons/git-branch.svg";
import grid from "lucide-static/icons/grid-3x3.svg";
import history from "lucide-static/icons/history.svg";
import house from "lucide-static/icons/house.svg";
import image from "lucide-static/icons/image.svg";
import info from "lucide-static/icons/info.svg";
import list from "lucide-static/icons/list.svg";
import listChecks from "lucide-static/icons/list-checks.svg";
import map from "lucide-static/icons/map.svg";
import paintbrush from "lucide-static/icons/paintbrush.svg";
import pause from "lucide-static/icons/pause.svg";
import play from "lucide-static/icons/play.svg";
import plug from "lucide-static/icons/plug.svg";
import plus from "lucide-static/icons/plus.svg";
import power from "lucide-static/icons/power.svg";
import refreshCw from "lucide-static/icons/refresh-cw.svg";
import rotateCw from "lucide-static/icons/rotate-cw.svg";
import rss from "lucide-static/icons/rss.svg";
import save from "lucide-static/icons/save.svg";
import search from "lucide-static/icons/search.svg";
import server from "lucide-static/icons/server.svg";
import shuffle from "lucide-static/icons/shuffle.svg";
import sliders from "lucide-static/icons/sliders-horizontal.svg";
import stop from "lucide-static/icons/square.svg";
import stethoscope from "lucide-static/icons/stethoscope.svg";
import undo from "lucide-static/icons/undo-2.svg";
import wandSparkles from "lucide-static/icons/wand-sparkles.svg";
import x from "lucide-static/icons/x.svg";

/** SVG by name. */
export const icons = {
  archive,
  "arrow-down": arrowDown,
  "arrow-left": arrowLeft,
  "arrow-right": arrowRight,
  "arrow-up": arrowUp,
  "briefcase-medical": briefcaseMedical,
  "chart-line": chartLine,
  check,
  "chevron-down": chevronDown,
  "chevron-right": chevronRight,
  clock,
  columns,
  compass,
  contrast,
  copy,
  crosshair,
  ellipsis,
  eye,
  "fast-forward": fastForward,
  file,
  "file-text": fileText,
  film,
  flask: flaskConical,
  "folder-open": folderOpen,
  "git-branch": gitBranch,
  "grid-3x3": grid,
  history,
  house,
  image,
  info,
  list,
  "list-checks": listChecks,
  map,
  paintbrush,
  pause,
  play,
  plug,
  plus,
  power,
  "refresh-cw": refreshCw,
  "rotate-cw": rotateCw,
  rss,
  save,
  search,
  server,
  shuffle,
  "sliders-horizontal": sliders,
  stethoscope,
  stop,
  undo,
  "wand-sparkles": wandSparkles,
  x,
};

/** @typedef {keyof typeof icons | ""} IconName */
