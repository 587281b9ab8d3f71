export { plot, dot, link, ruleX, text, tickX } from "@observablehq/plot";
