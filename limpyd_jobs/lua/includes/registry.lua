-- Registry: what processes that cannot import a class, or a model, need to find its records: see known_classes.py.

local function write_classes(rows)
  for _, row in ipairs(rows and cjson.decode(rows) or {}) do
    local field, text, needed_key = unpack(row)
    if not needed_key or redis.pcall('EXISTS', needed_key) == 1 then
      redis.pcall('HSET', 'limpyd-jobs:classes', field, text)
    end
  end
end
