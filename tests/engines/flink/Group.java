import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.transforms.windowing.DefaultTrigger;
import org.apache.beam.sdk.transforms.windowing.PaneInfo;
import org.apache.beam.sdk.util.WindowedValue;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.WindowingStrategy;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.InternalTimer;
import org.apache.flink.streaming.api.operators.InternalTimerService;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Triggerable;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/** GroupByKey with the default trigger: all values of a key and window, at the window's end. */
final class Group extends AbstractStreamOperator<byte[]>
    implements OneInputStreamOperator<byte[], byte[]>, Triggerable<String, String> {
  private final byte[] components;
  private final String from;
  private final String to;

  private transient Coder<WindowedValue<KV<Object, Object>>> inputs;
  private transient Coder<WindowedValue<KV<Object, Iterable<Object>>>> results;
  private transient Coder<Object> keys;
  private transient Coder<BoundedWindow> windows;
  private transient MapState<String, byte[]> groups;
  private transient InternalTimerService<String> ends;

  Group(byte[] components, String from, String to) {
    this.components = components;
    this.from = from;
    this.to = to;
  }

  /** Refuse what this does not do. */
  static void check(WindowingStrategy<?, ?> strategy) {
    if (!(strategy.getTrigger() instanceof DefaultTrigger) || strategy.needsMerge()) {
      throw new UnsupportedOperationException("a GroupByKey with " + strategy);
    }
  }

  @Override
  @SuppressWarnings({"unchecked", "rawtypes"})
  public void open() throws Exception {
    super.open();
    RunnerApi.Components parts = RunnerApi.Components.parseFrom(components);
    inputs = PortablePipeline.coder(parts, from);
    results = PortablePipeline.coder(parts, to);
    keys = PortablePipeline.keyCoder(inputs);
    windows = PortablePipeline.windowCoder(inputs);
    groups =
        getRuntimeContext().getMapState(
            new MapStateDescriptor<>("groups", Types.STRING, PortablePipeline.BYTES));
    ends = getInternalTimerService("ends", StringSerializer.INSTANCE, this);
  }

  @Override
  public void processElement(StreamRecord<byte[]> record) throws Exception {
    for (WindowedValue<KV<Object, Object>> element :
        PortablePipeline.decode(inputs, record.getValue()).explodeWindows()) {
      BoundedWindow window = element.getWindows().iterator().next();
      String place = HexFormat.of().formatHex(PortablePipeline.encode(windows, window));
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      byte[] before = groups.get(place);
      if (before != null) {
        bytes.write(before);
      }
      inputs.encode(element, bytes);
      groups.put(place, bytes.toByteArray());
      ends.registerEventTimeTimer(place, window.maxTimestamp().getMillis());
    }
  }

  @Override
  public void onEventTime(InternalTimer<String, String> timer) throws Exception {
    byte[] bytes = groups.get(timer.getNamespace());
    groups.remove(timer.getNamespace());
    ByteArrayInputStream rest = new ByteArrayInputStream(bytes);
    List<Object> values = new ArrayList<>();
    while (rest.available() > 0) {
      values.add(inputs.decode(rest).getValue().getValue());
    }
    Object key = PortablePipeline.decode(keys, PortablePipeline.keyBytes(timer.getKey()));
    BoundedWindow window =
        PortablePipeline.decode(windows, HexFormat.of().parseHex(timer.getNamespace()));
    output.collect(
        new StreamRecord<>(
            PortablePipeline.encode(
                results,
                WindowedValue.of(
                    KV.of(key, values), window.maxTimestamp(), window, PaneInfo.ON_TIME_AND_ONLY_FIRING))));
  }

  @Override
  public void onProcessingTime(InternalTimer<String, String> timer) {
    throw new IllegalStateException("no such timers are set");
  }
}
