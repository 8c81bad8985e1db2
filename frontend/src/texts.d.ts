declare module "*.css" {
  const styles: string;
  export default styles;
}
declare module "*.svg" {
  const text: string;
  export default text;
}
