-- Registry: what processes that cannot import a class, or a model, need to find its records: see known_classes.py.

local function write_classes(rows)
  for _, row in ipairs(rows and cjson.decode(rows) or {}) do
    local field, text, needed_key = unpack(row)
    if not needed_key or redis.pcall('EXISTS', needed_key) == 1 then
      redis.pcall('HSET', 'limpyd-jobs:classes', field, text)
    end
  end
end

-- Fails, before anything is written, if the jobs of the database are being moved to another one, or were moved there:
-- see relocations.py. Processes ask with the classes that they write, so each notices within a minute.
local function refuse_if_moved(rows)
  local told = rows and redis.pcall('HGET', 'limpyd-jobs:move', 'told')
  if type(told) == 'string' then error('LIMPYD-JOBS-MOVED ' .. told, 0) end
end
